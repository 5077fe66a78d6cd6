/** python's cryptography as a judge: its verifier of TLS chains where the installed release has one. */
import { fileURLToPath } from 'node:url';
import { findPython } from '../harness/python.ts';
import { JudgingProgram } from './program.ts';
import { describeJudge } from './verification.ts';

const script = fileURLToPath(new URL('python/judge.py', import.meta.url));

describeJudge('python cryptography', async () => {
  const python = await findPython('cryptography');
  return python === null
    ? { judge: null, why: 'python3 with cryptography is not installed' }
    : { judge: new JudgingProgram([python, script], () => true), why: '' };
});
