/** The pins of a bundle for people: one `name: value` a line, under the names that --json has. */
import { authenticateBundle, type BundlePins, type CertificateFacts, type CommandRootPins } from '../../../pki/bundle/index.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';
import { secretOf, withSource } from './source.ts';

export function writePins(pins: BundlePins, ports: Ports, json: boolean): void {
  if (json) writeJson(ports.io, pins);
  else ports.io.out(pinLines(pins).join('\n'));
}

export function pinLines(pins: BundlePins): string[] {
  const { commandRoots, signers, rotation, republish, certificates, ...plain } = pins;
  return [
    ...Object.entries(plain).map(([name, value]) => `${name}: ${value ?? '-'}`),
    ...commandRoots.map((root) => `commandRoot: ${rootLine(root)}`),
    ...Object.entries(signers).map(([name, reference]) => `signers.${name}: ${reference}`),
    `rotation: ${rotation === null ? '-' : `${rotation.id}, ${rotation.stage}${rotation.aborted ? ', aborted' : ''}`}`,
    ...(republish === null ? [] : [`republish: at version ${republish.version} (${republish.reason}, ${republish.actor})`]),
    ...Object.entries(certificates).map(([name, facts]) => `certificates.${name}: ${factsLine(facts)}`),
  ];
}

export const rootLine = (root: CommandRootPins): string =>
  `${root.id} ${root.pin} ${root.signing ? 'signing' : 'trusted'}, added ${root.addedAt}, until ${root.notAfter}`;

const factsLine = ({ sha256, count, serial, notAfter }: CertificateFacts): string =>
  `${sha256} (${count} certificate${count === 1 ? '' : 's'}, serial ${serial}, until ${notAfter})`;

/**
 * Reads a bundle as one that is only looked at: checked against its seal where there is a secret, and with a warning
 * whenever nothing vouches for it (CLI-014 to CLI-017).
 */
export async function readShown(flag: string | null, ports: Ports): Promise<{ text: string; authenticated: boolean }> {
  const { text, name } = await withSource(flag, ports, async (source) => ({ ...(await source.read()), name: source.name }));
  const secret = secretOf(ports);
  const authenticated = secret !== undefined && authenticateBundle(text, secret).authenticated;
  if (!authenticated) {
    const remedy =
      secret === undefined
        ? 'set BETTER_COMPUTE_SECRET to check them against the seal'
        : 'compare them, then seal it: better-compute pki reseal';
    ports.io.err(`warning: nothing vouches for these pins: whoever can write ${name} chooses them (${remedy})`);
  }
  return { text, authenticated };
}
