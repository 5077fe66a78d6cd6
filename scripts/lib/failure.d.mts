export class SetupError extends Error {
  readonly hint: string;
  readonly exit: number;
  constructor(message: string, hint: string, options?: { exit?: number; cause?: unknown });
}
export function runScript(run: () => Promise<void>): Promise<void>;
