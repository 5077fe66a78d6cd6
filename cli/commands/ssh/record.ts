/** Where an issuance is written down. Loaded only when one is. */
import { createDatabase } from '../../../drizzle/client.ts';
import { recordSshCertificate, type SshIssuance } from '../../../services/ssh-certificates.ts';

/** @throws NOT_FOUND for a node nobody knows; UNAVAILABLE when the database does not answer */
export async function recordAt(url: string, issuance: SshIssuance): Promise<void> {
  const db = createDatabase(url, { max: 1, applicationName: 'better-compute ssh' });
  try {
    await recordSshCertificate(db, issuance);
  } finally {
    await db.close();
  }
}
