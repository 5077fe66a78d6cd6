/**
 * The keys of a bundle (KEY-010), one row each. Loading, creating, sealing and showing all walk this table, so a key that is
 * not here does not exist. Command-signing roots are not here: there are several during a rotation (command-roots.ts).
 */
export type KeyForm = 'authority' | 'signing' | 'decryption' | 'ssh';

export interface KeyRow {
  readonly form: KeyForm;
  /** Bundles made before this key existed still load (KEY-036, KEY-037). */
  readonly optional: boolean;
  /** The bundle may hold the public half only (KEY-045). */
  readonly mayBeOffline: boolean;
  /** Its private half may be kept by a token or a key service (KEY-039). */
  readonly mayBeExternal: boolean;
  /** There only while another key is exchanged: a new bundle has none. */
  readonly passing: boolean;
  readonly summary: string;
}

const row = (form: KeyForm, summary: string, flags: Partial<Omit<KeyRow, 'form' | 'summary'>> = {}): KeyRow =>
  Object.freeze({ form, summary, optional: false, mayBeOffline: false, mayBeExternal: false, passing: false, ...flags });

export const keyTable = Object.freeze({
  rootCa: row('authority', 'root CA: certifies the node, serving and internal CA', { mayBeOffline: true, mayBeExternal: true }),
  nodeCa: row('authority', 'node CA: certifies agents'),
  servingCa: row('authority', 'serving CA: certifies gateways towards daemons'),
  internalCa: row('authority', 'internal CA: certifies the processes of the control plane'),
  joinSigning: row('signing', 'signs join answers and trust bundles'),
  joinEncryption: row('decryption', 'join tokens are sealed to it'),
  rekeyEncryption: row('decryption', 're-key bodies are sealed to it'),
  execTicketKey: row('signing', 'signs exec tickets', { optional: true }),
  execTicketKeyNext: row('signing', 'signs exec tickets after its promotion', { optional: true, passing: true }),
  execTicketKeyFormer: row('signing', 'signed exec tickets; verified by until the last is over', {
    optional: true,
    passing: true,
    mayBeOffline: true,
  }),
  auditSigning: row('signing', 'signs audit checkpoints', { optional: true, mayBeExternal: true }),
  sshCa: row('ssh', 'break-glass SSH CA', { optional: true }),
  sandboxSshCa: row('ssh', 'sandbox SSH CA', { optional: true }),
} as const satisfies Record<string, KeyRow>);

export type KeyName = keyof typeof keyTable;

export const keyNames = Object.freeze(Object.keys(keyTable) as KeyName[]);

/** What a new bundle holds, each once (KEY-010). */
export const foundingKeyNames = Object.freeze(keyNames.filter((name) => !keyTable[name].passing));

/** Name of a command root's private half among the private keys. */
export const commandRootKeyName = (id: string): string => `commandRoot:${id}`;
