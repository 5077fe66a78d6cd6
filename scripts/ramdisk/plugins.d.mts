export function pluginEntries(folder: string): { readonly path: string; readonly mode: number; readonly content: Buffer }[];
