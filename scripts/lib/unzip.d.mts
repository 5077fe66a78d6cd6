export function readFromZip(archive: Buffer, wanted: (name: string) => boolean): Buffer | null;
