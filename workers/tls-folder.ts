/** The gateways' certificate in its folder: the files of `pki issue-gateway`, replaced the same way (H-12). */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GatewayCertificateFolder } from '../activities/adapters/gateway-certificate.ts';
import { ControlError } from '../domain/errors.ts';
import { replaceWhole } from '../runtime/bundle-file-store.ts';
import { replaceSet } from '../runtime/replace-set.ts';

export function createTlsFolder(folder: string): GatewayCertificateFolder {
  const at = (name: string): string => join(folder, name);
  return {
    async read() {
      try {
        return await readFile(at('gateway.crt'), 'utf8');
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return null;
        throw new ControlError('INVALID_CONFIG', `${at('gateway.crt')} cannot be read`, { cause, details: { reason: 'not-readable' } });
      }
    },
    async writeAuthorities({ nodeCa, internalCa }) {
      for (const [name, text] of [
        ['node-ca.pem', nodeCa],
        ['internal-ca.pem', internalCa],
      ] as const) {
        const present = await readFile(at(name), 'utf8').catch(() => null);
        if (present !== null && present !== text) await replaceWhole(at(name), text);
      }
    },
    async replace({ key, chain, nodeCa }) {
      await replaceWhole(at('node-ca.pem'), nodeCa);
      await replaceSet(at('gateway'), [
        { path: at('gateway.key'), text: key },
        { path: at('gateway.crt'), text: chain },
      ]);
    },
  };
}
