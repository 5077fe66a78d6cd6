import assert from 'node:assert/strict';
import { patchesFor, wishOf } from '../../daemon/site/bmc/boot-plan.ts';
import { orderSlots } from '../../daemon/site/bmc/media.ts';
import { ifMatchLadder, tidyTag } from '../../daemon/site/redfish/etag.ts';
import { quirksOf } from '../../daemon/site/redfish/vendors.ts';
import { site } from '../../proto/index.ts';
import type { FakeBmc, Quirk } from '../fakes/bmc/server.ts';
import { setBmcStage, valueOf } from './bmc-stage.ts';

const { BootTarget } = site;

const patches = (bmc: FakeBmc) => bmc.requests.filter(({ method }) => method === 'PATCH');

describe('bmc.boot', () => {
  const stage = setBmcStage();
  const boot = (target: site.BootTarget, more = {}) => ({ payload: { target, ...more } });

  it('sets all three properties once, and reads them back', async () => {
    const bmc = await stage.bmcWith();
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK)));
    assert.deepEqual([end.target, end.enabled, end.already], ['Pxe', 'Once', false]);
    assert.deepEqual(
      patches(bmc).map(({ body }) => body),
      [{ Boot: { BootSourceOverrideEnabled: 'Once', BootSourceOverrideTarget: 'Pxe', BootSourceOverrideMode: 'UEFI' } }],
    );
    assert.match(String(patches(bmc)[0]?.headers['if-match']), /^"[0-9a-f]{12}"$/);
  });

  for (const power of ['On', 'Off'] as const) {
    for (const isSet of [true, false]) {
      it(`M29 a machine that is ${power} with an override ${isSet ? 'set' : 'cleared'}: the network once, and nothing sent when it is so`, async () => {
        const bmc = await stage.bmcWith({ power });
        if (isSet) Object.assign(bmc.state.boot, { target: 'Hdd', enabled: 'Once' });
        const first = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK)));
        assert.deepEqual([first.already, bmc.state.boot.target, bmc.state.boot.enabled], [false, 'Pxe', 'Once']);
        const again = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK)));
        assert.deepEqual([again.already, patches(bmc).length], [true, 1]);
        const cleared = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.NONE)));
        assert.deepEqual([cleared.enabled, bmc.state.boot.enabled], ['Disabled', 'Disabled']);
      });
    }
  }

  it('M38 after a crash it is done again: what holds is left alone', async () => {
    const bmc = await stage.bmcWith();
    await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK));
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, { ...boot(BootTarget.NETWORK), how: 'recover' }));
    assert.deepEqual([end.already, patches(bmc).length], [true, 1]);
  });

  it('M27 an override that is taken and forgotten is set once more, and then named', async () => {
    const once = await stage.bmcWith({ quirks: ['override-ignored-once'] });
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', once, boot(BootTarget.NETWORK)));
    assert.deepEqual([end.target, patches(once).length], ['Pxe', 2]);
    assert.match(end.notes.join(), /took the boot override and does not show it: set once more/);
    const never = await stage.bmcWith({ quirks: ['override-ignored'] });
    await assert.rejects(stage.perform('bmc.boot', never, boot(BootTarget.NETWORK)), {
      code: 'INVALID_STATE',
      message: /answers that it boots from Pxe Once, twice, and shows something else$/,
    });
    assert.equal(patches(never).length, 2);
  });

  it('M31 waits five seconds, up to six times, while the firmware starts; no override to the disk where that does harm', async () => {
    const bmc = await stage.bmcWith({ quirks: ['busy-in-post'] });
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.DISK)));
    assert.deepEqual([end.target, end.enabled, patches(bmc).length], ['Hdd', 'Once', 3]);
    assert.equal(stage.clock.slept.filter((ms) => ms === 5000).length, 2);
    const always = await stage.bmcWith({
      script: ({ method }) =>
        method === 'PATCH'
          ? {
              kind: 'answer',
              status: 400,
              body: '{"error":{"@Message.ExtendedInfo":[{"MessageId":"iLO.2.14.UnableToModifyDuringSystemPOST"}]}}',
            }
          : undefined,
    });
    await assert.rejects(stage.perform('bmc.boot', always, boot(BootTarget.NETWORK)), { code: 'NOT_YET' });
    assert.equal(patches(always).length, 6);
    const lenovo = await stage.bmcWith({ overrides: { '/redfish/v1': { Vendor: 'Lenovo' } } });
    const cleared = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', lenovo, boot(BootTarget.DISK)));
    assert.deepEqual([cleared.enabled, cleared.already, patches(lenovo).length], ['Disabled', true, 0]);
    assert.match(cleared.notes.join(), /no override to the disk on this make/);
  });

  const ladders: readonly (readonly [Quirk, readonly (string | undefined)[]])[] = [
    ['etag-required', ['tag']],
    ['etag-precondition', ['tag']],
    ['etag-double-quoted', ['tag']],
    ['etag-weak-refused', ['weak', 'tag']],
    ['etag-never-matches', ['tag', undefined]],
  ];
  for (const [quirk, sent] of ladders) {
    it(`M63 M64 is taken by a controller with ${quirk}`, async () => {
      const bmc = await stage.bmcWith({ quirks: [quirk] });
      await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK));
      assert.equal(bmc.state.boot.target, 'Pxe');
      const form = (tag: unknown) =>
        typeof tag !== 'string' ? undefined : /^W\/"[0-9a-f]+"$/.test(tag) ? 'weak' : /^"[0-9a-f]+"$/.test(tag) ? 'tag' : tag;
      assert.deepEqual(
        patches(bmc).map(({ headers }) => form(headers['if-match'])),
        sent,
      );
    });
  }

  it('M64 the ladder: as it came, a weak tag as a strong one, none; any where none is known and one is demanded', () => {
    assert.deepEqual(ifMatchLadder('"a"'), ['"a"', null]);
    assert.deepEqual(ifMatchLadder('W/"a"'), ['W/"a"', '"a"', null]);
    assert.deepEqual(ifMatchLadder('""a""'), ['"a"', null]);
    assert.deepEqual(ifMatchLadder(null), [null, '*']);
    assert.deepEqual(['W/""x""', 'x', ' "x" '].map(tidyTag), ['W/"x"', '"x"', '"x"']);
  });

  it('sends each property where it is held: the settings object, the system, or both', async () => {
    const bmc = await stage.bmcWith({ quirks: ['settings-object'] });
    await stage.perform('bmc.boot', bmc, boot(BootTarget.NETWORK));
    assert.deepEqual(
      patches(bmc).map(({ path }) => path),
      ['/redfish/v1/Systems/1/Settings'],
    );
    assert.equal(bmc.state.boot.target, 'Pxe');
    const live = { BootSourceOverrideEnabled: 'Disabled', BootSourceOverrideTarget: 'None', BootSourceOverrideMode: 'Legacy' };
    const wish = { enabled: 'Once', target: 'Pxe', url: null, notes: [] } as const;
    // Of a Lenovo: its settings object holds the boot order alone.
    assert.deepEqual(
      patchesFor(wish, { live, settings: { BootOrder: [] } }, quirksOf('lenovo')).map(({ to }) => to),
      ['live'],
    );
    assert.deepEqual(patchesFor(wish, { live, settings: { BootSourceOverrideTarget: 'None' } }, quirksOf('')), [
      { to: 'settings', boot: { BootSourceOverrideTarget: 'Pxe' } },
      { to: 'live', boot: { BootSourceOverrideEnabled: 'Once', BootSourceOverrideMode: 'UEFI' } },
    ]);
    assert.deepEqual(patchesFor(wish, { live, settings: null }, quirksOf('dell'))[0], {
      to: 'live',
      boot: { BootSourceOverrideMode: 'UEFI' },
    });
    const { BootSourceOverrideMode: _mode, ...without } = live;
    assert.deepEqual(patchesFor(wish, { live: without, settings: null }, quirksOf(''))[0]?.boot, {
      BootSourceOverrideEnabled: 'Once',
      BootSourceOverrideTarget: 'Pxe',
    });
  });

  it('boots over HTTP by an address where it can be told, else by DHCP, else by PXE', async () => {
    const url = 'http://10.0.0.5/boot/e-1/snp.efi';
    const told = await stage.bmcWith({ quirks: ['http-boot-uri'] });
    await stage.perform('bmc.boot', told, boot(BootTarget.HTTP, { uefiHttpUrl: url }));
    assert.deepEqual([told.state.boot.target, told.state.boot.url], ['UefiHttp', url]);
    const dhcp = await stage.bmcWith();
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', dhcp, boot(BootTarget.HTTP, { uefiHttpUrl: url })));
    assert.deepEqual([end.target, end.notes], ['UefiHttp', ['the controller takes no address for HTTP boot: it comes by DHCP']]);
    const views = { live: { 'BootSourceOverrideTarget@Redfish.AllowableValues': ['None', 'Pxe', 'Hdd'] }, settings: null };
    assert.equal(wishOf({ target: BootTarget.HTTP, uefiHttpUrl: url }, views, quirksOf(''))?.target, 'Pxe');
    assert.throws(
      () => void stage.handlers()['bmc.boot'].run({ target: BootTarget.HTTP, uefiHttpUrl: 'tftp://x', mediaUrl: '' } as never, {} as never),
      {
        code: 'INVALID_INPUT',
        message: 'uefi_http_url is not an http or https address without an account: "tftp://x"',
      },
    );
  });

  it('M66 inserts an image into the first slot that can, waits for an eject under way, and boots from it', async () => {
    const image = 'https://10.0.0.5/iso/e-1.iso';
    const bmc = await stage.bmcWith({ quirks: ['media-busy'] });
    const end = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.MEDIA, { mediaUrl: image })));
    assert.deepEqual([end.target, [...bmc.state.media.values()], bmc.effects.mediaMoves], ['Cd', [image], ['insert Cd1 (On)']]);
    await stage.perform('bmc.boot', bmc, boot(BootTarget.MEDIA, { mediaUrl: image }));
    assert.equal(bmc.effects.mediaMoves.length, 1, 'it is in already');
    const odd = await stage.bmcWith({
      script: ({ path }) => (path.includes('/Cd1/Actions') ? { kind: 'answer', status: 405, body: '' } : undefined),
    });
    await stage.perform('bmc.boot', odd, boot(BootTarget.MEDIA, { mediaUrl: image }));
    assert.deepEqual(odd.effects.mediaMoves, ['insert Cd2 (On)'], 'not the floppy, and not the slot that answers 405');
    const lame = await stage.bmcWith({ quirks: ['media-slot-refuses'] });
    await stage.perform('bmc.boot', lame, boot(BootTarget.MEDIA, { mediaUrl: image }));
    assert.deepEqual(lame.effects.mediaMoves, ['insert Cd2 (On)'], 'a slot with the action comes first');
    const slot = (path: string, insertPath: string | null, held: string) => ({ path, insertPath, ejectPath: null, image: held });
    assert.deepEqual(
      orderSlots([slot('a', null, ''), slot('b', 'x', 'held'), slot('c', 'x', '')]).map(({ path }) => path),
      ['c', 'b', 'a'],
    );
  });

  it('M66 ejects only the named image, and only from a machine that is off', async () => {
    const image = 'http://10.0.0.5/iso/e-1.iso';
    const bmc = await stage.bmcWith({ quirks: ['media-busy'] });
    const slots = '/redfish/v1/Managers/1/VirtualMedia';
    bmc.state.media.set(`${slots}/Cd1`, 'http://elsewhere/a.iso').set(`${slots}/Cd2`, image);
    const kept = valueOf(site.BmcBootResultSchema, await stage.perform('bmc.boot', bmc, boot(BootTarget.NONE, { mediaUrl: image })));
    assert.match(kept.notes.join(), /the image stays in .*\/Cd2: the machine is on, and is turned off first/);
    assert.deepEqual(bmc.effects.mediaMoves, []);
    await stage.perform('bmc.power', bmc, { payload: { action: site.PowerAction.OFF_HARD } });
    await stage.perform('bmc.boot', bmc, boot(BootTarget.NONE, { mediaUrl: image }));
    assert.deepEqual(bmc.effects.mediaMoves, ['eject Cd2 (Off)']);
    await stage.perform('bmc.boot', bmc, boot(BootTarget.MEDIA, { mediaUrl: image }));
    assert.deepEqual(bmc.effects.mediaMoves.at(-1), 'insert Cd2 (Off)');
    assert.ok(stage.clock.slept.filter((ms) => ms === 5000).length >= 2, 'refused while the eject was under way');
  });
});
