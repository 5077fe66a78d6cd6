/** What a command of bcd may touch of the world around it; a test gives it buffers. */
export interface BcdIo {
  /** Data; the line end is added. */
  out(text: string): void;
  /** Talk, for people. */
  err(text: string): void;
  readonly env: NodeJS.ProcessEnv;
  now(): number;
  readStdin(): Promise<string>;
}

const stdinMaxChars = 64 * 1024;

export const processIo = (): BcdIo => ({
  out: (text) => void process.stdout.write(`${text}\n`),
  err: (text) => void process.stderr.write(`${text}\n`),
  env: process.env,
  now: Date.now,
  async readStdin() {
    let text = '';
    for await (const chunk of process.stdin.setEncoding('utf8')) {
      text += chunk as string;
      if (text.length > stdinMaxChars) break;
    }
    return text;
  },
});
