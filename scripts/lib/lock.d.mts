export type Lock = { readonly kind: 'taken'; release(): void } | { readonly kind: 'held'; readonly pid: number };
export function isAlive(pid: number): boolean;
export function tryLock(path: string): Lock;
export function waitForLock(path: string, options: { timeoutMs: number; onWait?: (pid: number) => void }): Promise<Lock>;
