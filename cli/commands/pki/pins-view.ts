/** The pins of a bundle for people: one `name: value` a line, under the names that --json has. */
import type { BundlePins, CertificateFacts, CommandRootPins } from '../../../pki/bundle/index.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export function writePins(pins: BundlePins, ports: Ports, json: boolean): void {
  if (json) writeJson(ports.io, pins);
  else ports.io.out(pinLines(pins).join('\n'));
}

export function pinLines(pins: BundlePins): string[] {
  const { commandRoots, rotation, republish, certificates, ...plain } = pins;
  return [
    ...Object.entries(plain).map(([name, value]) => `${name}: ${value ?? '-'}`),
    ...commandRoots.map((root) => `commandRoot: ${rootLine(root)}`),
    `rotation: ${rotation === null ? '-' : `${rotation.id}, ${rotation.stage}${rotation.aborted ? ', aborted' : ''}`}`,
    ...(republish === null ? [] : [`republish: at version ${republish.version} (${republish.reason}, ${republish.actor})`]),
    ...Object.entries(certificates).map(([name, facts]) => `certificates.${name}: ${factsLine(facts)}`),
  ];
}

export const rootLine = (root: CommandRootPins): string =>
  `${root.id} ${root.pin} ${root.signing ? 'signing' : 'trusted'}, added ${root.addedAt}, until ${root.notAfter}`;

const factsLine = ({ sha256, count, serial, notAfter }: CertificateFacts): string =>
  `${sha256} (${count} certificate${count === 1 ? '' : 's'}, serial ${serial}, until ${notAfter})`;

/** CLI-016: said whenever nothing vouches for what is shown. */
export function warnUnauthenticated(ports: Ports, path: string, hasSecret: boolean): void {
  const remedy = hasSecret
    ? 'compare them, then seal it: better-compute pki reseal'
    : 'set BETTER_COMPUTE_SECRET to check them against the seal';
  ports.io.err(`warning: nothing vouches for these pins: whoever can write ${path} chooses them (${remedy})`);
}
