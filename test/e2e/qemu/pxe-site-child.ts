/**
 * A site's boot server by itself, for pxe.ts: in the network namespace of the machines, with entries as commands of a run make them. What
 * it logs goes out as lines of JSON.
 */
import { copyFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { site } from '../../../proto/index.ts';
import { bootStage, cleanUp, prepare } from '../../daemon/boot-stage.ts';
import { createDeployment } from '../../harness/deployment.ts';

interface Wanted {
  readonly address: string;
  /** name → path */
  readonly loaders: Readonly<Record<string, string>>;
  readonly machines: readonly { readonly nodeId: string; readonly mac: string; readonly answer: 'ramdisk' | 'hold' | 'local' }[];
}

const { address, loaders, machines } = JSON.parse(await readFile(process.argv[2] ?? '', 'utf8')) as Wanted;
const say = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);
const deployment = await createDeployment({ now: 1_799_999_000_000 });
const config = { host: address, listen: '0.0.0.0', tftpPort: 69, loaders: { efiX64: 'snponly.efi' }, proxyDhcp: {} };
const stage = await bootStage(deployment, config, say);
for (const [name, path] of Object.entries(loaders)) await copyFile(path, join(stage.artefacts, name));
const server = await stage.start();
for (const { nodeId, mac, answer } of machines) {
  if (answer === 'ramdisk') await prepare(server, { nodeId, macAddresses: [mac], entryId: nodeId });
  else await cleanUp(server, { nodeId, macAddresses: [mac], answer: answer === 'hold' ? site.BootAnswer.HOLD : site.BootAnswer.LOCAL });
}
say({ ready: server.addresses });
process.stdin.resume();
process.stdin.once('end', () => process.exit(0));
