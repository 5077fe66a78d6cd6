export function findPythonJudges(options: {
  readonly fetch: boolean;
  readonly say?: (line: string) => void;
}): Promise<{ readonly path: string } | { readonly why: string }>;
