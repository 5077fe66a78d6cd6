/**
 * Every decoder of bytes that somebody else may have written, with inputs that it accepts. Where a signature or a seal stands before
 * the part that reads, the target signs or seals what was changed, so that the reader behind it is reached.
 */
import type { Target } from './engine.ts';
import { bundleTargets } from './targets-bundle.ts';
import { joseTargets } from './targets-jose.ts';
import { metalTargets } from './targets-metal.ts';
import { protocolTargets } from './targets-protocol.ts';
import { quorumTargets } from './targets-quorum.ts';
import { siteTargets } from './targets-site.ts';
import { sshTargets } from './targets-ssh.ts';
import { textTargets } from './targets-text.ts';
import { tpmTargets } from './targets-tpm.ts';
import { x509Targets } from './targets-x509.ts';
import { createWorld } from './world.ts';

export async function createTargets(): Promise<readonly Target[]> {
  const world = await createWorld();
  return [
    ...(await x509Targets(world)),
    ...bundleTargets(world),
    ...(await protocolTargets(world)),
    ...(await textTargets(world)),
    ...(await quorumTargets()),
    ...(await sshTargets()),
    ...(await joseTargets(world)),
    ...siteTargets(),
    ...(await metalTargets(world)),
    ...tpmTargets(world),
  ];
}
