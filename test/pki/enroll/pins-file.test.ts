import assert from 'node:assert/strict';
import { type ControlPlanePins, encodeJoinBundle, encodePinsFile, joinBundleUnder, parsePinsFile } from '../../../pki/enroll/index.ts';
import { spkiPin } from '../../../pki/x509/index.ts';
import { refusal, sharedBundle, trustDomain } from '../support.ts';

const token = 'bcj1.AAAA';

describe("the file of a machine's pins", () => {
  let pins: ControlPlanePins;
  let other: ControlPlanePins;
  before(async () => {
    const { servingCa, internalCa, joinSigning, auditSigning } = await sharedBundle();
    pins = { trustDomain, gateway: 'https://gw.test:8443', servingCaPin: spkiPin(servingCa.spki), joinKey: joinSigning.spki };
    other = { ...pins, servingCaPin: spkiPin(internalCa.spki), joinKey: auditSigning?.spki ?? joinSigning.spki };
  });

  it('CLI-020 is read as it was written, with and without a server name', () => {
    for (const written of [pins, { ...pins, serverName: 'gw' }]) assert.deepEqual(parsePinsFile(encodePinsFile(written)), written);
  });

  it('CLI-020 is refused with the field that is wrong', () => {
    const changed = (change: Record<string, unknown>): string =>
      JSON.stringify({ ...(JSON.parse(encodePinsFile(pins)) as object), ...change });
    for (const [text, message] of [
      ['', /it does not hold a JSON object/],
      ['[]', /it does not hold a JSON object/],
      ['x'.repeat(20_000), /it is too long/],
      [changed({ format: 'other' }), /it must have format better-compute-pins and version 1/],
      [changed({ version: 2 }), /it must have format/],
      [changed({ token: 'bcj1.x' }), /token is not one of its fields/],
      [changed({ gateway: undefined }), /its gateway must be text/],
      [changed({ gateway: 'http://gw.test' }), /its gateway must be an https URL without a path/],
      [changed({ servingCaPin: 'sha256/x' }), /its servingCaPin must be sha256/],
      [changed({ joinSigningKey: 'AAAA' }), /its joinSigningKey must be a P-256 public key/],
      [changed({ joinSigningPin: other.servingCaPin }), /its joinSigningPin is not the one of its joinSigningKey/],
      [changed({ trustDomain: 'UPPER' }), /its trustDomain is not a trust domain/],
      [changed({ serverName: 7 }), /its serverName must be text/],
    ] as const) {
      assert.throws(() => parsePinsFile(text), refusal('INVALID_CONFIG', 'pins', message), text.slice(0, 80));
    }
    assert.throws(() => encodePinsFile({ ...pins, gateway: 'gw' }), refusal('INVALID_INPUT', 'pins', /its gateway must be an https URL/));
  });

  it('CLI-020 makes a bare token enough, and refuses a join string for another control plane', () => {
    assert.deepEqual(joinBundleUnder(pins, `${token}\n`), { ...pins, token });
    const elsewhere = { ...pins, gateway: 'https://gw-2.test', serverName: 'gw-2', token };
    assert.deepEqual(joinBundleUnder(pins, encodeJoinBundle(elsewhere)), elsewhere, 'where to dial is no trust');
    for (const [change, fields] of [
      [{ trustDomain: 'other.test' }, 'trustDomain'],
      [{ servingCaPin: other.servingCaPin }, 'servingCaPin'],
      [{ joinKey: other.joinKey }, 'joinKey'],
      [{ ...other }, 'servingCaPin, joinKey'],
    ] as const) {
      assert.throws(
        () => joinBundleUnder(pins, encodeJoinBundle({ ...pins, ...change, token })),
        refusal('PERMISSION_DENIED', 'pins-differ', new RegExp(`another control plane than this machine's pins: ${fields}$`)),
      );
    }
    assert.throws(() => joinBundleUnder(pins, 'bcj1.not base64'), refusal('MALFORMED', 'join-bundle', /must start with bcjoin1/));
  });
});
