export interface Entry {
  readonly path: string;
  readonly mode: number;
  readonly content?: Buffer;
  readonly device?: readonly [number, number];
}
export const modes: Readonly<Record<'folder' | 'file' | 'program' | 'link' | 'character', number>>;
export function encodeCpio(entries: readonly Entry[]): Buffer;
export function withFolders(entries: readonly Entry[]): Entry[];
