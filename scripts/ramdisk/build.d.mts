export interface Artefact {
  readonly sha256: string;
  readonly bytes: number;
}
export interface Manifest {
  readonly format: string;
  readonly kernel: Artefact & { readonly version: string };
  readonly initramfs: Artefact;
  readonly missing: readonly { readonly program: string; readonly package: string; readonly for: string }[];
  readonly modules: readonly string[];
  readonly files: readonly (Artefact & { readonly path: string; readonly mode: string })[];
}
export function buildRamdisk(options?: {
  readonly out?: string;
  readonly cache?: string;
  readonly flavour?: string;
  readonly plugins?: string;
}): Promise<{ folder: string; manifest: Manifest }>;
