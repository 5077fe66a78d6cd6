/** Evidence by this ramdisk's own key: the certificate of the moment goes along, so that whoever verifies it later needs nothing of ours. */

import { create } from '@bufbuild/protobuf';
import { signEnvelope } from '../../pki/envelope/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { SignedSchema } from '../../proto/index.ts';
import type { StoredIdentity } from '../state/identity.ts';
import type { EvidenceSigner } from './ports.ts';

export function evidenceSigner({ key, identity }: StoredIdentity): EvidenceSigner {
  const { trustDomain, nodeId, chain } = identity;
  return {
    trustDomain,
    nodeId,
    async sign(purpose, body) {
      const signature = await signEnvelope(signerFromPrivateKey(key), purpose, [body]);
      return create(SignedSchema, { body, signature: { ...signature, chain: [...chain] } });
    },
  };
}
