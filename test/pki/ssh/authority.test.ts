import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import {
  assertDistinctSshAuthorities,
  type BreakGlassRequest,
  createBreakGlassAuthority,
  createKrl,
  createSandboxAuthority,
  createSshSerial,
  encodeSshKeyLine,
  type HostRequest,
  parseSshCaLine,
  parseSshCertificateLine,
  parseSshKeyLine,
  type SandboxRequest,
  sshCertAuthorityLine,
  sshKeyOf,
  sshTrustFiles,
  verifySshCertificate,
} from '../../../pki/ssh/index.ts';
import { refusedWith } from '../x509/authorities.ts';
import { createPair, createTestAuthorities, minute, now, user } from './support.ts';

const { breakGlass, sandbox } = createTestAuthorities();
const request: BreakGlassRequest = {
  publicKey: user.line,
  account: 'root',
  nodeId: 'node_1',
  keyId: 'ada',
  sessionEndsAt: now + 600 * minute,
};
const sandboxed: SandboxRequest = {
  publicKey: user.line,
  account: 'agent',
  instanceId: 'i-1',
  keyId: 'ada',
  ttlSeconds: 300,
  sessionEndsAt: now + 600 * minute,
  sandboxExpiresAt: now + 600 * minute,
};
const hosted: HostRequest = { publicKey: user.line, principals: ['i-1.guests.example.com'], keyId: 'i-1', validBefore: now + 60 * minute };
const seconds = (ms: number): bigint => BigInt(ms / 1_000);
const keyOf = (line: string) => parseSshKeyLine(line);

describe('pki/ssh break-glass authority', () => {
  it('SSH-001 issues a user certificate that verifies, and says who asked', async () => {
    const issued = await breakGlass.issueUserCertificate(request);
    const certificate = parseSshCertificateLine(issued.certificate);
    assert.equal(certificate.kind, 'user');
    assert.equal(certificate.keyId, 'ada');
    assert.equal(certificate.serial, issued.serial);
    assert.deepEqual(certificate.publicKey.blob, keyOf(user.line).blob);
    assert.deepEqual([...certificate.extensions], [['permit-pty', null]]);
    assert.equal(certificate.criticalOptions.size, 0);
    verifySshCertificate(certificate, { authorities: [keyOf(breakGlass.publicKey)], kind: 'user', principal: 'root@node_1', now });
  });

  it('SSH-002 is valid for at most an hour, however much is asked for', async () => {
    for (const [ttlSeconds, expected] of [
      [undefined, 3_600],
      [7_200, 3_600],
      [3_601, 3_600],
      [3_600, 3_600],
      [60, 60],
    ] as const) {
      const issued = await breakGlass.issueUserCertificate({ ...request, ...(ttlSeconds === undefined ? {} : { ttlSeconds }) });
      assert.equal(issued.validBefore, now + expected * 1_000);
      const { validAfter, validBefore } = parseSshCertificateLine(issued.certificate);
      assert.deepEqual([validAfter, validBefore], [seconds(now) - 60n, seconds(issued.validBefore)]);
    }
  });

  it('SSH-003 is never valid beyond the session that asked, and not issued after it', async () => {
    const issued = await breakGlass.issueUserCertificate({ ...request, sessionEndsAt: now + 10 * minute + 999 });
    assert.equal(issued.validBefore, now + 10 * minute);
    for (const sessionEndsAt of [now, now + 999, now - minute, Number.NaN])
      await assert.rejects(
        breakGlass.issueUserCertificate({ ...request, sessionEndsAt }),
        refusedWith('INVALID_STATE', 'session-over', /less than 1 s are left/),
      );
  });

  it('SSH-004 names one account on one node', async () => {
    const issued = await breakGlass.issueUserCertificate(request);
    assert.equal(issued.principal, 'root@node_1');
    assert.deepEqual(parseSshCertificateLine(issued.certificate).principals, ['root@node_1']);
    const bad: ReadonlyArray<readonly [Partial<BreakGlassRequest>, RegExp]> = [
      [{ account: 'root,admin' }, /^account "root,admin" is no account name$/],
      [{ account: '*' }, /^account/],
      [{ account: '' }, /^account/],
      [{ account: 'a@b' }, /^account/],
      [{ account: 'root\n' }, /^account/],
      [{ account: '-oProxyCommand' }, /^account/],
      [{ nodeId: 'n1,n2' }, /^nodeId "n1,n2" is no id$/],
      [{ nodeId: '*' }, /^nodeId/],
      [{ nodeId: '' }, /^nodeId/],
      [{ nodeId: 'n1\nroot@n2' }, /^nodeId/],
      [{ nodeId: 'a@b' }, /^nodeId/],
      [{ keyId: 'ada\nroot' }, /^keyId is not one line of 1 to 256 bytes$/],
      [{ keyId: '' }, /^keyId/],
      [{ keyId: 'é'.repeat(129) }, /^keyId/],
      [{ ttlSeconds: 0 }, /^ttlSeconds is a whole number of seconds from 1/],
      [{ ttlSeconds: 1.5 }, /^ttlSeconds/],
      [{ forceCommand: 'id\nrm' }, /^forceCommand is not one line$/],
      [{ forceCommand: '' }, /^forceCommand/],
      [{ sourceAddresses: [] }, /^sourceAddresses are not addresses or networks$/],
      [{ sourceAddresses: ['10.0.0.0/33'] }, /^sourceAddresses/],
      [{ sourceAddresses: ['example.com'] }, /^sourceAddresses/],
      [{ sourceAddresses: ['!10.0.0.1'] }, /^sourceAddresses/],
    ];
    for (const [change, message] of bad)
      await assert.rejects(
        breakGlass.issueUserCertificate({ ...request, ...change }),
        refusedWith('INVALID_INPUT', 'ssh-request', message),
      );
  });

  it('takes Ed25519, P-256 and security keys of users, and no RSA key', async () => {
    const p256 = createPair('p256').line;
    const wire = (...parts: (string | Uint8Array)[]) =>
      Buffer.concat(parts.flatMap((part) => [Buffer.from([0, 0, 0, part.length]), Buffer.from(part)]));
    const sk = `sk-ssh-ed25519@openssh.com ${wire('sk-ssh-ed25519@openssh.com', keyOf(user.line).blob.subarray(-32), 'ssh:').toString('base64')} fido`;
    for (const publicKey of [user.line, p256, sk])
      assert.equal(
        parseSshCertificateLine((await breakGlass.issueUserCertificate({ ...request, publicKey })).certificate).principals[0],
        'root@node_1',
      );
    const { n = '', e = '' } = generateKeyPairSync('rsa', { modulusLength: 2_048 }).publicKey.export({ format: 'jwk' });
    const modulus = Buffer.concat([Buffer.of(0), Buffer.from(n, 'base64url')]);
    const rsa = Buffer.concat([wire('ssh-rsa', Buffer.from(e, 'base64url')), Buffer.from([0, 0, 1, 1]), modulus]);
    await assert.rejects(
      breakGlass.issueUserCertificate({ ...request, publicKey: `ssh-rsa ${rsa.toString('base64')}` }),
      refusedWith('INVALID_INPUT', 'ssh-request', /^publicKey is ssh-rsa: no user certificate is issued for one$/),
    );
    await assert.rejects(
      breakGlass.issueUserCertificate({ ...request, publicKey: `${user.line}\n${p256}` }),
      refusedWith('MALFORMED', 'ssh-form', /^publicKey is not one line$/),
    );
  });

  it('carries a forced command and source addresses, each in its double wrapping', async () => {
    const issued = await breakGlass.issueUserCertificate({
      ...request,
      forceCommand: 'journalctl -b',
      sourceAddresses: ['10.0.0.0/8', '::1/128'],
    });
    assert.deepEqual(
      [...parseSshCertificateLine(issued.certificate).criticalOptions],
      [
        ['force-command', 'journalctl -b'],
        ['source-address', '10.0.0.0/8,::1/128'],
      ],
    );
  });

  it('a signer that errs, or signs with another key, makes no certificate', async () => {
    const pair = createPair();
    for (const sign of [async () => new Uint8Array(64), async () => new Uint8Array(3), createPair().signer.sign]) {
      const broken = createBreakGlassAuthority({
        publicKey: pair.line,
        signer: { publicKey: pair.signer.publicKey, sign },
        now: () => now,
      });
      await assert.rejects(
        broken.issueUserCertificate(request),
        refusedWith('INTERNAL', 'not-as-asked', /did not make the certificate that was asked for/),
      );
    }
    const down = { publicKey: pair.signer.publicKey, sign: () => Promise.reject(new Error('down')) };
    await assert.rejects(
      createBreakGlassAuthority({ publicKey: pair.line, signer: down, now: () => now }).issueUserCertificate(request),
      /down/,
    );
    assert.throws(
      () => createBreakGlassAuthority({ publicKey: createPair().line, signer: pair.signer, now: () => now }),
      refusedWith('INVALID_CONFIG', 'ssh-ca-key', /has another key than its public line/),
    );
  });

  it('A-PKI-02 an authority may be P-256 too', async () => {
    const p256 = createTestAuthorities('p256').breakGlass;
    const certificate = parseSshCertificateLine((await p256.issueUserCertificate(request)).certificate);
    verifySshCertificate(certificate, { authorities: [keyOf(p256.publicKey)], kind: 'user', principal: 'root@node_1', now });
  });

  it('serials are 63 random bits and never zero', () => {
    assert.equal(
      createSshSerial(() => new Uint8Array(8).fill(0xff)),
      0x7fff_ffff_ffff_ffffn,
    );
    const draws = [new Uint8Array(8), Uint8Array.of(0x80, 0, 0, 0, 0, 0, 0, 0), Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 9)];
    assert.equal(
      createSshSerial(() => draws.shift() as Uint8Array),
      9n,
    );
  });
});

describe('pki/ssh sandbox authority', () => {
  it('SBX-002 signs for 60 seconds to 15 minutes, and refuses less and more', async () => {
    for (const ttlSeconds of [60, 900])
      assert.equal((await sandbox.issueUserCertificate({ ...sandboxed, ttlSeconds })).validBefore, now + ttlSeconds * 1_000);
    for (const ttlSeconds of [59, 901, 0, 60.5, Number.NaN])
      await assert.rejects(
        sandbox.issueUserCertificate({ ...sandboxed, ttlSeconds }),
        refusedWith('INVALID_INPUT', 'ssh-request', /^ttlSeconds is a whole number of seconds from 60 to 900, not /),
      );
  });

  it('SBX-003 SBX-004 never past the session, nor past the sandbox, and never for less than a minute', async () => {
    const sooner = now + 2 * minute;
    assert.equal((await sandbox.issueUserCertificate({ ...sandboxed, sessionEndsAt: sooner })).validBefore, sooner);
    assert.equal((await sandbox.issueUserCertificate({ ...sandboxed, sandboxExpiresAt: sooner })).validBefore, sooner);
    for (const end of [{ sessionEndsAt: now + minute - 1 }, { sandboxExpiresAt: now + minute - 1 }, { sandboxExpiresAt: now - 1 }])
      await assert.rejects(
        sandbox.issueUserCertificate({ ...sandboxed, ...end }),
        refusedWith('INVALID_STATE', 'session-over', /less than 60 s are left/),
      );
  });

  it('SBX-005 SBX-006 names one account in one instance: for a restored sandbox, that whose memory it has', async () => {
    const issued = await sandbox.issueUserCertificate({ ...sandboxed, instanceId: 'i-captured' });
    assert.equal(issued.principal, 'agent@i-captured');
    assert.deepEqual(parseSshCertificateLine(issued.certificate).principals, ['agent@i-captured']);
  });

  it('SBX-007 neither authority opens what the other is for', async () => {
    const node = { authorities: [keyOf(breakGlass.publicKey)], kind: 'user', principal: 'root@node_1', now } as const;
    const guest = { authorities: [keyOf(sandbox.publicKey)], kind: 'user', principal: 'agent@i-1', now } as const;
    const forNode = parseSshCertificateLine((await breakGlass.issueUserCertificate(request)).certificate);
    const forGuest = parseSshCertificateLine((await sandbox.issueUserCertificate(sandboxed)).certificate);
    verifySshCertificate(forNode, node);
    verifySshCertificate(forGuest, guest);
    const foreign = refusedWith('BAD_SIGNATURE', 'unknown-authority', /by an authority that is not trusted here/);
    assert.throws(() => verifySshCertificate(forNode, { ...guest, principal: 'root@node_1' }), foreign);
    assert.throws(() => verifySshCertificate(forGuest, { ...node, principal: 'agent@i-1' }), foreign);
  });

  it('SBX-011 one key for both is refused, whatever the comments say', () => {
    const line = breakGlass.publicKey;
    assertDistinctSshAuthorities(line, sandbox.publicKey);
    for (const same of [line, line.replace('ssh ca', 'another comment'), line.split(' ').slice(0, 2).join(' ')])
      assert.throws(
        () => assertDistinctSshAuthorities(line, same),
        refusedWith('INVALID_CONFIG', 'same-ssh-ca', /^tunnels\.sandboxSsh must be a different CA from tunnels\.ssh$/),
      );
  });

  it('SBX-015 SBX-016 an authority is one line of an Ed25519 or P-256 key', () => {
    for (const kind of ['ed25519', 'p256'] as const) assert.ok(parseSshCaLine(createPair(kind).line));
    const { line } = createPair();
    const bad: ReadonlyArray<readonly [string, RegExp]> = [
      [`${line}\n${createPair().line}`, /is not one line of OpenSSH form$/],
      [`${line}\n`, /is not one line/],
      [`${line}\r`, /is not one line/],
      [`${line}\u2028${createPair().line}`, /is not one line/],
      [`cert-authority ${line}`, /is not one line/],
      [line.replace(' ', '  '), /is not one line/],
      [line.replace('ssh-ed25519', 'ecdsa-sha2-nistp256'), /is not one line/],
      ['', /is not one line/],
      [
        `sk-ssh-ed25519@openssh.com ${Buffer.concat(['sk-ssh-ed25519@openssh.com', keyOf(line).blob.subarray(-32), 'ssh:'].flatMap((part) => [Buffer.from([0, 0, 0, part.length]), Buffer.from(part)])).toString('base64')}`,
        /is sk-ssh-ed25519@openssh\.com, neither Ed25519 nor ECDSA P-256$/,
      ],
    ];
    for (const [text, message] of bad)
      assert.throws(() => parseSshCaLine(text, 'sandboxExec.caPublicKey'), refusedWith('INVALID_CONFIG', 'ssh-ca-key', message));
  });

  it('writes what guests and clients trust, as one line each', () => {
    const files = sshTrustFiles({ caPublicKey: sandbox.publicKey, account: 'agent', place: 'i-1' });
    assert.deepEqual(files, { trustedUserCaKeys: `${sandbox.publicKey}\n`, authorizedPrincipals: 'agent@i-1\n' });
    assert.equal(sshCertAuthorityLine({ caPublicKey: sandbox.publicKey, host: 'i-1' }), `@cert-authority i-1 ${sandbox.publicKey}\n`);
    for (const host of ['*', 'a,b', '!a', 'a b', 'a\nb'])
      assert.throws(
        () => sshCertAuthorityLine({ caPublicKey: sandbox.publicKey, host }),
        refusedWith('INVALID_INPUT', 'ssh-request', /is no plain name/),
      );
    assert.throws(
      () => sshTrustFiles({ caPublicKey: sandbox.publicKey, account: 'a\nb', place: 'i' }),
      refusedWith('INVALID_INPUT', 'ssh-request', /is no account name/),
    );
    assert.throws(
      () => sshTrustFiles({ caPublicKey: sandbox.publicKey, account: 'a', place: 'i,j' }),
      refusedWith('INVALID_INPUT', 'ssh-request', /is no id/),
    );
  });
});

describe('pki/ssh host certificates', () => {
  it('SBX-019 every authority signs them, and tells serial and end', async () => {
    for (const authority of [breakGlass, sandbox]) {
      const issued = await authority.issueHostCertificate(hosted);
      assert.deepEqual(Object.keys(issued).sort(), ['certificate', 'serial', 'validBefore']);
      const certificate = parseSshCertificateLine(issued.certificate);
      assert.equal(certificate.kind, 'host');
      assert.equal(certificate.serial, issued.serial);
      assert.equal(issued.validBefore, hosted.validBefore);
      verifySshCertificate(certificate, {
        authorities: [keyOf(authority.publicKey)],
        kind: 'host',
        principal: 'i-1.guests.example.com',
        now,
      });
    }
  });

  it('SBX-020 they have no options and no extensions', async () => {
    const { criticalOptions, extensions } = parseSshCertificateLine((await sandbox.issueHostCertificate(hosted)).certificate);
    assert.deepEqual([criticalOptions.size, extensions.size], [0, 0]);
  });

  it('SBX-021 their names are plain: never a list, a wildcard or a blank', async () => {
    for (const name of ['a,b', '*', '*.example.com', 'a b', '!a', 'a?', '', 'a\nb', '-a', 'é', '[::1]:22', 'a'.repeat(254)])
      await assert.rejects(
        sandbox.issueHostCertificate({ ...hosted, principals: ['good', name] }),
        refusedWith('INVALID_INPUT', 'ssh-request', /^principals .* is no plain name/),
      );
    for (const principals of [[], ['a', 'a'], Array.from({ length: 65 }, (_, i) => `h${i}`)])
      await assert.rejects(
        sandbox.issueHostCertificate({ ...hosted, principals }),
        refusedWith('INVALID_INPUT', 'ssh-request', /^principals are not 1 to 64 names, each once$/),
      );
  });

  it('SBX-022 they live for maxHostTtlSeconds at most, which is 30 days at most', async () => {
    const days = 86_400_000;
    assert.equal((await sandbox.issueHostCertificate({ ...hosted, validBefore: now + 30 * days })).validBefore, now + 30 * days);
    for (const validBefore of [now + 30 * days + 1, now + 31 * days, now, now - 1, Number.NaN])
      await assert.rejects(
        sandbox.issueHostCertificate({ ...hosted, validBefore }),
        refusedWith('INVALID_INPUT', 'ssh-request', /^validBefore is not within 2592000 s from now$/),
      );
    const pair = createPair();
    const options = { publicKey: pair.line, signer: pair.signer, now: () => now };
    const short = createSandboxAuthority({ ...options, maxHostTtlSeconds: 3_600 });
    await assert.rejects(
      short.issueHostCertificate({ ...hosted, validBefore: now + 3_601_000 }),
      refusedWith('INVALID_INPUT', 'ssh-request', /within 3600 s/),
    );
    for (const maxHostTtlSeconds of [30 * 86_400 + 1, 0, 1.5])
      assert.throws(
        () => createSandboxAuthority({ ...options, maxHostTtlSeconds }),
        refusedWith('INVALID_CONFIG', 'max-host-ttl', /^maxHostTtlSeconds is 1 to 2592000, not /),
      );
  });
});

describe('pki/ssh verification', () => {
  const authorities = [keyOf(breakGlass.publicKey)];
  const asked = { authorities, kind: 'user', principal: 'root@node_1', now } as const;

  it('is for one kind, one name and one time', async () => {
    const { certificate: line, validBefore } = await breakGlass.issueUserCertificate(request);
    const certificate = parseSshCertificateLine(line);
    assert.throws(
      () => verifySshCertificate(certificate, { ...asked, kind: 'host' }),
      refusedWith('PERMISSION_DENIED', 'wrong-kind', /is for a user, not for a host/),
    );
    assert.throws(
      () => verifySshCertificate(certificate, { ...asked, principal: 'root@node_2' }),
      refusedWith('PERMISSION_DENIED', 'wrong-principal', /does not name "root@node_2"/),
    );
    verifySshCertificate(certificate, { ...asked, now: validBefore - 1 });
    assert.throws(
      () => verifySshCertificate(certificate, { ...asked, now: validBefore }),
      refusedWith('CERTIFICATE_EXPIRED', 'expired', /has expired/),
    );
    verifySshCertificate(certificate, { ...asked, now: now - 60_000 });
    assert.throws(
      () => verifySshCertificate(certificate, { ...asked, now: now - 60_001 }),
      refusedWith('CERTIFICATE_EXPIRED', 'not-yet-valid', /is not valid yet/),
    );
  });

  it('falls with the list that revokes it', async () => {
    const { certificate: line, serial } = await breakGlass.issueUserCertificate(request);
    const certificate = parseSshCertificateLine(line);
    const { krl } = createKrl({
      version: 1n,
      generatedAt: now,
      comment: '',
      certificates: [{ authority: authorities[0] as never, serials: [serial], keyIds: [] }],
      keys: [],
    });
    assert.throws(() => verifySshCertificate(certificate, { ...asked, krl }), refusedWith('REVOKED', 'serial', /is revoked/));
    const { krl: other } = createKrl({
      version: 1n,
      generatedAt: now,
      comment: '',
      certificates: [{ authority: authorities[0] as never, serials: [serial + 1n], keyIds: [] }],
      keys: [],
    });
    verifySshCertificate(certificate, { ...asked, krl: other });
  });

  it('a line of a key is written as it is read', () => {
    assert.equal(encodeSshKeyLine(sshKeyOf(user.privateKey), 'ada@laptop'), user.line);
  });
});
