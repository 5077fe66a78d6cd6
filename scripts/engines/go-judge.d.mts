export function findGoJudge(options: { fetch: boolean; say?: (line: string) => void }): Promise<{ path: string } | { why: string }>;
export function ensureGoJudge(options: { say: (line: string) => void }): Promise<void>;
