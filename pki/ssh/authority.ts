/**
 * The two SSH authorities of a deployment. Both sign host certificates; each signs user certificates of its own shape only:
 *
 *   break-glass   `<account>@<node>`, at most 1 h, never past the session that asked              (SSH-001 … SSH-004)
 *   sandbox       `<account>@<instance>`, 60 s to 15 min, never past session and sandbox          (SBX-002 … SBX-006)
 *
 * Nodes trust the first and guests the second, so neither certificate opens what the other is for (SBX-007). The shape of a
 * certificate is decided here, from few values, never taken from a request.
 */
import { randomBytes } from 'node:crypto';
import { ControlError } from '../../domain/errors.ts';
import { encodeSshCertificateLine } from './certificate.ts';
import { createSshCertificate, type SshCertificateTemplate } from './create-certificate.ts';
import { isAddressList } from './options.ts';
import { keyKindOf, parseSshKeyLine } from './public-key.ts';
import { invalid } from './refusals.ts';
import type { SshSigner } from './signature.ts';
import { isPlainHostName } from './verify-certificate.ts';
import { isOneLine } from './wire.ts';

/** What is remembered of an issuance (SSH-005), and what goes to the one who asked. */
export interface IssuedSshCertificate {
  /** One line, as ssh reads it. */
  readonly certificate: string;
  readonly serial: bigint;
  /** Unix milliseconds; the certificate is good before it, not at it. */
  readonly validBefore: number;
}

export interface IssuedUserCertificate extends IssuedSshCertificate {
  readonly principal: string;
}

interface UserRequest {
  /** One line of OpenSSH form. */
  readonly publicKey: string;
  readonly account: string;
  /** For the trail: who asked, as one line. Stands in every log line of sshd. */
  readonly keyId: string;
  /** Unix milliseconds at which the session that asked ends. */
  readonly sessionEndsAt: number;
  readonly forceCommand?: string;
  readonly sourceAddresses?: readonly string[];
}

export interface BreakGlassRequest extends UserRequest {
  readonly nodeId: string;
  /** At most an hour, and an hour when absent; more gives an hour. */
  readonly ttlSeconds?: number;
}

export interface SandboxRequest extends UserRequest {
  /** The instance; for a sandbox restored from a snapshot of memory, the one it was captured on (SBX-006). */
  readonly instanceId: string;
  readonly sandboxExpiresAt: number;
  /** 60 to 900. */
  readonly ttlSeconds: number;
}

export interface HostRequest {
  readonly publicKey: string;
  readonly principals: readonly string[];
  readonly keyId: string;
  /** Unix milliseconds. */
  readonly validBefore: number;
}

/** What both authorities have. */
export interface SshCertificateAuthority {
  /** One line of OpenSSH form: what is trusted. */
  readonly publicKey: string;
  /** SBX-019. INVALID_INPUT for names that are patterns, and a lifetime beyond the authority's. */
  issueHostCertificate(request: HostRequest): Promise<IssuedSshCertificate>;
}

export interface BreakGlassAuthority extends SshCertificateAuthority {
  issueUserCertificate(request: BreakGlassRequest): Promise<IssuedUserCertificate>;
}

export interface SandboxAuthority extends SshCertificateAuthority {
  issueUserCertificate(request: SandboxRequest): Promise<IssuedUserCertificate>;
}

export interface SshAuthorityOptions {
  /** As the bundle has it: one line. */
  readonly publicKey: string;
  readonly signer: SshSigner;
  readonly now: () => number;
  /** For host certificates; 30 days is the default and the most. */
  readonly maxHostTtlSeconds?: number;
  readonly random?: (size: number) => Uint8Array;
}

const hour = 3_600;
const backdateSeconds = 60;
const maxHostTtl = 30 * 24 * hour;
const sandboxTtl = Object.freeze({ min: 60, max: 15 * 60 });

/** The break-glass authority: certificates for one account on one node. */
export const createBreakGlassAuthority = (options: SshAuthorityOptions): BreakGlassAuthority =>
  Object.freeze({
    ...createAuthority(options),
    issueUserCertificate: async (request: BreakGlassRequest) => {
      const { nodeId, ttlSeconds = hour } = request;
      assertTtl(ttlSeconds, { min: 1, max: Number.MAX_SAFE_INTEGER });
      const now = options.now();
      const end = Math.min(now + Math.min(ttlSeconds, hour) * 1_000, request.sessionEndsAt);
      return issueUser(options, { request, place: ['nodeId', nodeId], now, end, least: 1 });
    },
  });

/** The sandbox authority: certificates for one account in one instance, used by sandboxes.exec only (SBX-001). */
export const createSandboxAuthority = (options: SshAuthorityOptions): SandboxAuthority =>
  Object.freeze({
    ...createAuthority(options),
    issueUserCertificate: async (request: SandboxRequest) => {
      const { instanceId, ttlSeconds, sessionEndsAt, sandboxExpiresAt } = request;
      assertTtl(ttlSeconds, sandboxTtl);
      const now = options.now();
      const end = Math.min(now + ttlSeconds * 1_000, sessionEndsAt, sandboxExpiresAt);
      return issueUser(options, { request, place: ['instanceId', instanceId], now, end, least: sandboxTtl.min });
    },
  });

const assertTtl = (ttlSeconds: number, { min, max }: { readonly min: number; readonly max: number }): void => {
  if (!Number.isSafeInteger(ttlSeconds) || ttlSeconds < min || ttlSeconds > max)
    throw invalid('ttlSeconds', `is a whole number of seconds from ${min} to ${max}, not ${ttlSeconds}`);
};

interface UserIssue {
  readonly request: UserRequest;
  readonly place: readonly [name: string, id: string];
  /** Read once: the least lifetime that may be asked for is not cut by the time it takes to judge it. */
  readonly now: number;
  /** Unix milliseconds. */
  readonly end: number;
  /** Fewer seconds than this are no certificate. */
  readonly least: number;
}

const accountPattern = /^[A-Za-z_][A-Za-z0-9._-]{0,31}$/;
const placePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

const issueUser = async (options: SshAuthorityOptions, { request, place, now, end, least }: UserIssue): Promise<IssuedUserCertificate> => {
  if (!accountPattern.test(request.account)) throw invalid('account', `${JSON.stringify(request.account.slice(0, 64))} is no account name`);
  if (!placePattern.test(place[1])) throw invalid(place[0], `${JSON.stringify(place[1].slice(0, 64))} is no id`);
  if (!(end - now >= least * 1_000))
    throw new ControlError('INVALID_STATE', `less than ${least} s are left of the session: no certificate is issued`, {
      details: { reason: 'session-over', hint: 'begin a new session, then ask again' },
    });
  const principal = `${request.account}@${place[1]}`;
  const issued = await issue(options, {
    ...subjectOf(request, 'user'),
    principals: [principal],
    end,
    criticalOptions: criticalOptionsOf(request),
    // A terminal, and nothing that reaches on from the machine: no agent, no forwarding, no X11, no rc files.
    extensions: new Map([['permit-pty', null]]),
  });
  return { ...issued, principal };
};

const criticalOptionsOf = ({ forceCommand, sourceAddresses }: UserRequest): Map<string, string> => {
  if (forceCommand !== undefined && (forceCommand === '' || !isOneLine(forceCommand))) throw invalid('forceCommand', 'is not one line');
  if (sourceAddresses !== undefined && !isAddressList(sourceAddresses.join(',')))
    throw invalid('sourceAddresses', 'are not addresses or networks');
  return new Map([
    ...(forceCommand === undefined ? [] : [['force-command', forceCommand] as const]),
    ...(sourceAddresses === undefined ? [] : [['source-address', sourceAddresses.join(',')] as const]),
  ]);
};

/** The key, which must be one that this kind of certificate is for, and the key id. */
const subjectOf = ({ publicKey, keyId }: { readonly publicKey: string; readonly keyId: string }, kind: 'user' | 'host') => {
  const key = parseSshKeyLine(publicKey, 'publicKey');
  const may = keyKindOf(key.type);
  if (!(kind === 'user' ? may.mayBeUser : may.mayBeHost))
    throw invalid('publicKey', `is ${key.type}: no ${kind} certificate is issued for one`);
  if (keyId === '' || Buffer.byteLength(keyId) > 256 || !isOneLine(keyId)) throw invalid('keyId', 'is not one line of 1 to 256 bytes');
  return { publicKey: key, keyId, kind } as const;
};

const createAuthority = (options: SshAuthorityOptions): SshCertificateAuthority => {
  const { publicKey, signer, maxHostTtlSeconds = maxHostTtl } = options;
  const key = parseSshCaLine(publicKey);
  if (Buffer.compare(key.blob, signer.publicKey.blob) !== 0)
    throw new ControlError('INVALID_CONFIG', 'the signer of an SSH authority has another key than its public line', {
      details: { reason: 'ssh-ca-key' },
    });
  if (!Number.isSafeInteger(maxHostTtlSeconds) || maxHostTtlSeconds < 1 || maxHostTtlSeconds > maxHostTtl)
    throw new ControlError('INVALID_CONFIG', `maxHostTtlSeconds is 1 to ${maxHostTtl}, not ${maxHostTtlSeconds}`, {
      details: { reason: 'max-host-ttl' },
    });
  return { publicKey, issueHostCertificate: (request) => issueHost(options, request, maxHostTtlSeconds) };
};

const issueHost = async (options: SshAuthorityOptions, request: HostRequest, maxTtlSeconds: number): Promise<IssuedSshCertificate> => {
  const { principals, validBefore } = request;
  const pattern = principals.find((name) => !isPlainHostName(name));
  if (pattern !== undefined)
    throw invalid('principals', `${JSON.stringify(pattern.slice(0, 64))} is no plain name (letters, digits, ".", "_", "-")`);
  if (principals.length === 0 || principals.length > 64 || new Set(principals).size !== principals.length)
    throw invalid('principals', 'are not 1 to 64 names, each once');
  const leftMs = validBefore - options.now();
  if (!(leftMs >= 1_000 && leftMs <= maxTtlSeconds * 1_000)) throw invalid('validBefore', `is not within ${maxTtlSeconds} s from now`);
  return issue(options, { ...subjectOf(request, 'host'), principals, end: validBefore, criticalOptions: new Map(), extensions: new Map() });
};

type Draft = Omit<SshCertificateTemplate, 'serial' | 'validAfter' | 'validBefore'> & { readonly end: number };

const issue = async (
  { now, random = randomBytes, signer }: SshAuthorityOptions,
  { end, ...draft }: Draft,
): Promise<IssuedSshCertificate> => {
  const serial = createSshSerial(random);
  const validBefore = BigInt(Math.floor(end / 1_000));
  const validAfter = BigInt(Math.floor(now() / 1_000) - backdateSeconds);
  const certificate = await createSshCertificate({ template: { ...draft, serial, validAfter, validBefore }, signer, random });
  return { certificate: encodeSshCertificateLine(certificate, draft.keyId), serial, validBefore: Number(validBefore) * 1_000 };
};

/** 63 random bits, never zero: a database's bigint holds it, and a revocation list cannot name zero. */
export const createSshSerial = (random: (size: number) => Uint8Array = randomBytes): bigint => {
  const bits = Buffer.from(random(8)).readBigUInt64BE() & 0x7fff_ffff_ffff_ffffn;
  return bits === 0n ? createSshSerial(random) : bits;
};

/**
 * The public line of an SSH authority, as configuration hands it on: exactly one line, of an Ed25519 or P-256 key (SBX-015,
 * SBX-016). INVALID_CONFIG otherwise; a second line would be a second trusted authority.
 */
export const parseSshCaLine = (line: string, name = 'the SSH authority') => {
  const refuse = (what: string, cause?: unknown): ControlError =>
    new ControlError('INVALID_CONFIG', `the public key of ${name} ${what}`, {
      details: { reason: 'ssh-ca-key' },
      ...(cause === undefined ? {} : { cause }),
    });
  let key: ReturnType<typeof parseSshKeyLine>;
  try {
    key = parseSshKeyLine(line, 'key');
  } catch (cause) {
    throw refuse('is not one line of OpenSSH form', cause);
  }
  if (!keyKindOf(key.type).mayCertify) throw refuse(`is ${key.type}, neither Ed25519 nor ECDSA P-256`);
  return key;
};

/** SBX-011: by key, whatever the comments say, so that configuration cannot undo the split. INVALID_CONFIG when they are one. */
export const assertDistinctSshAuthorities = (ssh: string, sandboxSsh: string): void => {
  const [one, other] = [parseSshCaLine(ssh, 'tunnels.ssh'), parseSshCaLine(sandboxSsh, 'tunnels.sandboxSsh')];
  if (Buffer.compare(one.blob, other.blob) === 0)
    throw new ControlError('INVALID_CONFIG', 'tunnels.sandboxSsh must be a different CA from tunnels.ssh', {
      details: { reason: 'same-ssh-ca' },
    });
};
