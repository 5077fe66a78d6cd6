/** A command line of bcd, run in the test's own process. */
import { runBcd } from '../../daemon/cli/program.ts';

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export async function bcdHere(args: readonly string[]): Promise<Ran> {
  let [out, err] = ['', ''];
  const io = {
    out: (text: string) => void (out += `${text}\n`),
    err: (text: string) => void (err += `${text}\n`),
    env: {},
    now: Date.now,
    readStdin: async () => '',
  };
  return { code: await runBcd(args, io), out, err };
}
