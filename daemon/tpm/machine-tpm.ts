/**
 * This machine's TPM: its endorsement key, and an attestation key of ours under it that lives in two files of the data folder, which only
 * this TPM can load. Nothing is made persistent in the TPM, nothing is owned, no authorization of it is changed.
 *
 * Each use loads both keys anew: saved contexts do not outlive a restart of the TPM. What a program loads is flushed behind it, for a TPM
 * without a resource manager, which has room for three objects.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ControlError } from '../../domain/errors.ts';
import { openPrivateFolder, readIfPresent, writeDurably } from '../state/files.ts';
import { type RunTpmTool, tpmTools } from './tools.ts';

/** Kept with the identity: where the TPM is that its statement is about. */
export interface TpmPlace {
  readonly tcti: string;
  /** Which of its endorsement keys the inventory lists. */
  readonly ek: 'rsa' | 'ecc';
}

export interface ShownTpm {
  /** TPM2B_PUBLIC. */
  readonly ekPublic: Uint8Array;
  /** DER; empty where the TPM holds none. */
  readonly ekCertificates: readonly Uint8Array[];
  /** TPM2B_PUBLIC. */
  readonly akPublic: Uint8Array;
}

export interface OpenTpm {
  readonly shown: ShownTpm;
  /** TPM2_ActivateCredential. @returns the secret @throws INVALID_STATE when it was made for another TPM or key */
  activate(credential: { readonly blob: Uint8Array; readonly encryptedSecret: Uint8Array }): Promise<Uint8Array>;
  /** TPM2_Quote with these 32 bytes in it. */
  quote(digest: Uint8Array): Promise<{ readonly quote: Uint8Array; readonly signature: Uint8Array }>;
}

export interface OpenTpmOptions {
  readonly dataDir: string;
  readonly place: TpmPlace;
  /** Make an attestation key where there is none that this TPM loads; else that is an error. */
  readonly mayCreate: boolean;
  /** Gives up. */
  readonly signal?: AbortSignal;
}

/** Where manufacturers keep the endorsement key's certificate (TCG EK Credential Profile, section 2.2.1.4). */
const certificateAt = Object.freeze({ rsa: '0x01c00002', ecc: '0x01c0000a' });

const maxFileBytes = 16 * 1024;

/** @throws INVALID_STATE (tpm, tpm-key) and UNSUPPORTED as tpmTools; what `work` throws */
export async function withTpm<T>({ dataDir, place, mayCreate, signal }: OpenTpmOptions, work: (tpm: OpenTpm) => Promise<T>): Promise<T> {
  const folder = join(dataDir, 'tpm');
  await openPrivateFolder(folder);
  const scratch = await mkdtemp(join(folder, 'use-'));
  try {
    const bench = new Bench({ run: tpmTools(place.tcti, signal), clean: tpmTools(place.tcti), scratch, ek: place.ek });
    await bench.loadEk();
    await openAk(bench, { folder, mayCreate });
    return await work(await bench.open());
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function openAk(bench: Bench, { folder, mayCreate }: { folder: string; mayCreate: boolean }): Promise<void> {
  const paths = [join(folder, 'ak.pub'), join(folder, 'ak.priv')] as const;
  const [pub, priv] = await Promise.all(paths.map((path) => readIfPresent(path, maxFileBytes)));
  if (pub !== undefined && priv !== undefined) {
    try {
      return await bench.loadAk(pub, priv);
    } catch (cause) {
      if (!mayCreate)
        throw new ControlError(
          'INVALID_STATE',
          'the TPM does not load the attestation key of this identity: was it cleared, or exchanged?',
          {
            cause,
            details: { reason: 'tpm-key', hint: 'join again: bcd join --replace --attestor tpm' },
          },
        );
    }
  } else if (!mayCreate)
    throw new ControlError('INVALID_STATE', `${folder} holds no attestation key`, {
      details: { reason: 'tpm-key', hint: 'join again: bcd join --replace --attestor tpm' },
    });
  const made = await bench.createAk();
  await writeDurably(paths[0], made.pub);
  await writeDurably(paths[1], made.priv);
  await bench.loadAk(made.pub, made.priv);
}

interface BenchOptions {
  readonly run: RunTpmTool;
  /** The same, also when it was given up: for what must not stay behind in the TPM. */
  readonly clean: RunTpmTool;
  readonly scratch: string;
  readonly ek: TpmPlace['ek'];
}

/** The programs around one scratch folder. */
class Bench {
  readonly #options: BenchOptions;

  constructor(options: BenchOptions) {
    this.#options = options;
  }

  #path(name: string): string {
    return join(this.#options.scratch, name);
  }

  /** Under a resource manager each program has objects of its own, and there is nothing to flush. */
  async #run(program: string, args: readonly string[]): Promise<void> {
    const { run, clean } = this.#options;
    await withCleanUp(
      () => run(program, args),
      () => clean('tpm2_flushcontext', ['--transient-object']),
    );
  }

  async loadEk(): Promise<void> {
    const [context, pub] = [this.#path('ek.ctx'), this.#path('ek.pub')];
    await this.#run('tpm2_createek', ['-G', this.#options.ek, '-c', context, '-u', pub, '-f', 'tss']);
  }

  async createAk(): Promise<{ pub: Uint8Array; priv: Uint8Array }> {
    const [context, pub, priv] = [this.#path('new.ctx'), this.#path('new.pub'), this.#path('new.priv')];
    const kind = ['-G', 'ecc', '-g', 'sha256', '-s', 'ecdsa'];
    await this.#run('tpm2_createak', ['-C', this.#path('ek.ctx'), '-c', context, ...kind, '-u', pub, '-f', 'tss', '-r', priv]);
    return { pub: await readFile(pub), priv: await readFile(priv) };
  }

  async loadAk(pub: Uint8Array, priv: Uint8Array): Promise<void> {
    const [pubPath, privPath, context] = [this.#path('ak.pub'), this.#path('ak.priv'), this.#path('ak.ctx')];
    await writeFile(pubPath, pub);
    await writeFile(privPath, priv);
    await this.#underEkPolicy((session) =>
      this.#run('tpm2_load', ['-C', this.#path('ek.ctx'), '-P', `session:${session}`, '-u', pubPath, '-r', privPath, '-c', context]),
    );
  }

  /** The endorsement key's own policy: whoever may use the endorsement hierarchy. */
  async #underEkPolicy(work: (session: string) => Promise<void>): Promise<void> {
    const { run, clean } = this.#options;
    const session = this.#path('session.ctx');
    await run('tpm2_startauthsession', ['--policy-session', '-S', session]);
    await withCleanUp(
      async () => {
        await run('tpm2_policysecret', ['-S', session, '-c', 'endorsement']);
        await work(session);
      },
      () => clean('tpm2_flushcontext', [session]),
    );
  }

  async open(): Promise<OpenTpm> {
    const ekPublic = await readFile(this.#path('ek.pub'));
    const akPublic = await readFile(this.#path('ak.pub'));
    return {
      shown: { ekPublic, akPublic, ekCertificates: await this.#certificates() },
      activate: (credential) => this.#activate(credential),
      quote: (digest) => this.#quote(digest),
    };
  }

  async #certificates(): Promise<Uint8Array[]> {
    const { run, ek } = this.#options;
    const path = this.#path('ek.crt');
    try {
      await run('tpm2_nvread', ['-C', 'owner', '-o', path, certificateAt[ek]]);
    } catch {
      // Most virtual TPMs hold none; a control plane that needs it says so.
      return [];
    }
    const certificate = derOf(await readFile(path));
    return certificate === null ? [] : [certificate];
  }

  async #activate({ blob, encryptedSecret }: Parameters<OpenTpm['activate']>[0]): Promise<Uint8Array> {
    const [from, to] = [this.#path('credential'), this.#path('secret')];
    await writeFile(from, Buffer.concat([credentialHead, blob, encryptedSecret]));
    const keys = ['-c', this.#path('ak.ctx'), '-C', this.#path('ek.ctx')];
    await this.#underEkPolicy((session) =>
      this.#run('tpm2_activatecredential', [...keys, '-P', `session:${session}`, '-i', from, '-o', to]),
    );
    return readFile(to);
  }

  async #quote(digest: Uint8Array): Promise<{ quote: Uint8Array; signature: Uint8Array }> {
    const [message, signature] = [this.#path('quote'), this.#path('signature')];
    const about = ['-l', anyRegister, '-q', Buffer.from(digest).toString('hex'), '-g', 'sha256'];
    await this.#run('tpm2_quote', ['-c', this.#path('ak.ctx'), ...about, '-m', message, '-s', signature]);
    return { quote: await readFile(message), signature: await readFile(signature) };
  }
}

/** What went wrong first is what is told: a TPM that is not there cannot be cleaned up either. */
async function withCleanUp(work: () => Promise<void>, cleanUp: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    await cleanUp().catch(() => undefined);
    throw error;
  }
  await cleanUp();
}

/** The file format of tpm2_activatecredential: its magic and version 1. */
const credentialHead = Buffer.from('badcc0de00000001', 'hex');

/** A quote is of some register; nobody decides by it. */
const anyRegister = 'sha256:0';

/** Manufacturers leave room behind the certificate. null for what is no DER. */
function derOf(area: Buffer): Uint8Array | null {
  if (area.length < 4 || area[0] !== 0x30 || area[1] !== 0x82) return null;
  const end = 4 + area.readUInt16BE(2);
  return end <= area.length ? area.subarray(0, end) : null;
}
