export function daemonVersion(): string;
export function bundledDaemon(options?: { readonly version?: string; readonly executable?: boolean }): Promise<Buffer>;
