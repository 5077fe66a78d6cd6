/** The payload codec's key: one of its own under the deployment's secret, so a process that holds it holds nothing else. */
import { hkdfSync } from 'node:crypto';

/** Base64 of 32 bytes, as BETTER_COMPUTE_CODEC_KEY carries it. */
export const deriveCodecKey = (secret: string): string =>
  Buffer.from(hkdfSync('sha256', secret, '', 'better-compute temporal payload codec v1', 32)).toString('base64');
