/** The pure rules of enrolments over SSH: whose host key, whom to dial, what a machine must be, what may follow what. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { readHostKeyText } from '../../domain/enrolment/host-key.ts';
import { identityProblem, type MachineFacts, machineProblems } from '../../domain/enrolment/machine.ts';
import { accessProblems, credentialProblem, hostCredentialFile } from '../../domain/enrolment/order.ts';
import { type EnrolmentState, enrolmentMoves, enrolmentStates, isOver } from '../../domain/enrolment/states.ts';

describe('host keys as operators give them', () => {
  it('XC-034 one text names one key: whatever stands before or behind it is refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), fc.string({ minLength: 1, maxLength: 3 }), (digest, junk) => {
        const text = `SHA256:${Buffer.from(digest).toString('base64').replace('=', '')}`;
        assert.deepEqual(readHostKeyText(text), { kind: 'fingerprint', fingerprint: text });
        if (junk !== '=') assert.equal(readHostKeyText(`${text}${junk}`).kind, 'refused');
        assert.equal(readHostKeyText(`${junk}${text}`).kind, 'refused');
      }),
    );
  });
});

describe('whom an enrolment dials', () => {
  const access = { address: 'web-7.example.com', port: 22, login: 'root', becomeRoot: false };

  it('takes names and addresses, and says of what is none which field it is', () => {
    for (const address of ['web-7', 'web-7.example.com.', '10.0.0.7', '2001:db8::7', 'fe80::1%eth0', '::1'])
      assert.deepEqual(accessProblems({ ...access, address }), [], address);
    for (const address of ['', 'ssh://web-7', 'web-7:22', '[::1]', 'a b', '-web', 'web_7', 'x'.repeat(254), 'web;reboot', '$(id)'])
      assert.match(String(accessProblems({ ...access, address })), /^address /, address);
    for (const port of [0, -1, 65_536, 1.5, Number.NaN]) assert.match(String(accessProblems({ ...access, port })), /^port /);
    for (const login of ['', '-oProxyCommand=x', 'a b', 'root;', 'x'.repeat(33)])
      assert.match(String(accessProblems({ ...access, login })), /^login /);
  });

  it('a credential is the name of a file, and never what is in it', () => {
    assert.equal(hostCredentialFile('file://web-7.key'), 'web-7.key');
    for (const text of ['file://', 'file:///etc/shadow', 'file://../x', 'file://.ssh', 'file://a/b', 'web', 'file://a\n'])
      assert.equal(hostCredentialFile(text), undefined, text);
    assert.match(String(credentialProblem('secret://ssh/web')), /the worker that speaks SSH has a folder of its own/);
    const pasted = String(credentialProblem('-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA'));
    assert.match(pasted, /must name a file/);
    assert.equal(pasted.includes('b3Blbn'), false, 'what was pasted is not said back');
  });
});

describe('what a machine must be', () => {
  const release = { version: '0.1.0', sha256: 'a'.repeat(64) };
  const good: MachineFacts = {
    system: 'Linux x86_64',
    uid: '0',
    node: 'v20.20.2',
    systemctl: '/usr/bin/systemctl',
    sha256: release.sha256,
    version: '0.1.0',
    joined: false,
    otherUnit: false,
  };

  it('XC-046 XC-047 XC-048 every reason is said at once', () => {
    assert.deepEqual(machineProblems('enrol', good, release), []);
    const bad = { ...good, system: 'FreeBSD amd64', uid: '1000', node: 'v18.0.0', systemctl: '', joined: true, otherUnit: true };
    assert.equal(machineProblems('enrol', bad, release).length, 6);
    assert.equal(machineProblems('reenrol', bad, release).length, 4, 'what stands there is what a node that serves has');
    assert.match(String(machineProblems('enrol', { ...good, node: '' }, release)), /it has no node; bcd needs 20 or later/);
    assert.match(String(machineProblems('enrol', { ...good, sha256: '' }, null)), /it has no bcd, and the hosts worker has none to bring/);
  });

  it('XC-035 a node that is enrolled again runs this release, byte for byte; a new machine gets it', () => {
    const older = { ...good, sha256: 'b'.repeat(64), version: '0.0.9' };
    assert.match(
      String(machineProblems('reenrol', older, release)),
      /it runs bcd "0\.0\.9", not this release \(0\.1\.0\): upgrade it first/,
    );
    assert.match(String(machineProblems('reenrol', { ...older, sha256: '' }, release)), /it has no bcd/);
    assert.deepEqual(machineProblems('enrol', older, release), []);
    assert.match(String(machineProblems('reenrol', good, null)), /has no bcd to compare its own with/);
    assert.deepEqual(machineProblems('enrol', good, null), [], 'it was there before');
  });

  it('another node’s machine becomes nobody else’s', () => {
    assert.equal(identityProblem('enrol', 'web-7', { nodeId: null }), undefined);
    assert.equal(identityProblem('reenrol', 'web-7', { nodeId: null }), undefined, 'one that lost its identity');
    assert.equal(identityProblem('reenrol', 'web-7', { nodeId: 'web-7' }), undefined);
    assert.match(String(identityProblem('reenrol', 'web-7', { nodeId: 'db-1' })), /is node "db-1", not web-7/);
    assert.match(String(identityProblem('enrol', 'web-7', { nodeId: 'web-7' })), /is node "web-7" already/);
  });
});

describe('the life of an enrolment', () => {
  it('H-20 whatever is done, in whatever order: it completes once, after its mint, and nothing follows an end', () => {
    const moves = Object.keys(enrolmentMoves) as (keyof typeof enrolmentMoves)[];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...moves), { maxLength: 12 }), (tried) => {
        let state: EnrolmentState = 'open';
        const been: EnrolmentState[] = [state];
        for (const move of tried) {
          const { from, to } = enrolmentMoves[move];
          if (!from.includes(state)) continue;
          assert.equal(isOver(state), false);
          state = to;
          been.push(state);
        }
        assert.equal(new Set(been).size, been.length);
        if (been.includes('completed')) assert.deepEqual(been, ['open', 'minted', 'completed']);
        assert.ok(been.every((one) => enrolmentStates.includes(one)));
      }),
    );
  });
});
