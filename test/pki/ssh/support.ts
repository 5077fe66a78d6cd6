/** Keys, authorities and a clock for the tests of SSH; and what must be there for its oracles. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import {
  type BreakGlassAuthority,
  createBreakGlassAuthority,
  createSandboxAuthority,
  encodeSshKeyLine,
  type SandboxAuthority,
  type SshSigner,
  sshKeyOf,
  sshSignerFromPrivateKey,
} from '../../../pki/ssh/index.ts';

export const now = Date.parse('2026-01-15T12:00:00Z');
export const minute = 60_000;

export interface KeyPair {
  readonly privateKey: KeyObject;
  readonly line: string;
  readonly signer: SshSigner;
}

export const createPair = (kind: 'ed25519' | 'p256' = 'ed25519', comment = 'test'): KeyPair => {
  const { privateKey } = kind === 'ed25519' ? generateKeyPairSync('ed25519') : generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { privateKey, line: encodeSshKeyLine(sshKeyOf(privateKey), comment), signer: sshSignerFromPrivateKey(privateKey) };
};

export interface TestAuthorities {
  readonly breakGlass: BreakGlassAuthority;
  readonly sandbox: SandboxAuthority;
}

export const createTestAuthorities = (kind: 'ed25519' | 'p256' = 'ed25519', clock: () => number = () => now): TestAuthorities => {
  const [ssh, sandbox] = [createPair(kind, 'ssh ca'), createPair(kind, 'sandbox ssh ca')];
  return {
    breakGlass: createBreakGlassAuthority({ publicKey: ssh.line, signer: ssh.signer, now: clock }),
    sandbox: createSandboxAuthority({ publicKey: sandbox.line, signer: sandbox.signer, now: clock }),
  };
};

export const user = createPair('ed25519', 'ada@laptop');
