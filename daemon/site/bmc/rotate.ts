/**
 * bmc.rotate: another password for the controller's account, in two phases that survive a death at any point and never lock the account.
 *
 * The new password is stored before this command exists (the control plane's part); here it is set, then proven by a new login, and only
 * then is the command done. Which of the two holds is found by at most one login with each (M40): first the one that should hold at
 * that point. A change whose answer was lost is not sent again: a login tells. Where both are refused nothing more is tried.
 *
 * A factory account may do nothing before its password is changed, not even read: the refusal says where (M43).
 */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { site } from '../../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../../kinds/handler.ts';
import { ownPath } from '../redfish/address.ts';
import type { Credential } from '../redfish/authority.ts';
import type { RedfishClient } from '../redfish/client.ts';
import { membersOf } from '../redfish/collections.ts';
import { isRefusal } from '../redfish/refusals.ts';
import { countOf, fieldOf, type Json, linkAt, type Resource, textOf } from '../redfish/resource.ts';
import type { BmcAccess } from './access.ts';

type Candidate = 'current' | 'next';
type Credentials = Readonly<Record<Candidate, Credential>>;

const accountsMax = 64;

export function rotateHandler(access: BmcAccess): KindHandler {
  const withBoth = <T>(
    payload: site.BmcRotate,
    context: Omit<KindContext, 'note'>,
    work: (client: RedfishClient, credentials: Credentials) => Promise<T>,
  ): Promise<T> =>
    access.run({ target: payload, context }, async (client) => {
      const current = await access.readCredential(payload.credentialRef, context);
      const next = await access.readCredential(payload.newCredentialRef, context);
      assertTwo(current, next);
      client.hide(next.password);
      return work(client, { current, next });
    });
  return {
    // A login has no effect; which password holds is durable before anything is changed.
    prepare: (payload, context) =>
      withBoth(payload as site.BmcRotate, context, async (client, credentials) => ({
        holds: await findHolding(client, credentials, 'current'),
      })),
    run: (payload, context) =>
      withBoth(payload as site.BmcRotate, context, (client, credentials) =>
        rotate(client, credentials, context.note['holds'] === 'next' ? 'next' : 'current'),
      ),
    // The death came after the start: most likely the new one holds.
    recover: (payload, context) =>
      withBoth(payload as site.BmcRotate, context, async (client, credentials) =>
        rotate(client, credentials, await findHolding(client, credentials, 'next')),
      ),
  };
}

function assertTwo(current: Credential, next: Credential): void {
  const fail = (why: string): never => {
    throw new ControlError('INVALID_INPUT', `the new account ${why}`, { details: { reason: 'bmc-credential' } });
  };
  if (current.username !== next.username) fail('has another name than the one that holds: a rotation changes the password alone');
  if (current.password === next.password) fail('has the password that holds');
  // What firmware takes without truncating, escaping or refusing it.
  if (!/^[\x21-\x7e]+$/.test(next.password))
    fail('has a password with characters that controllers do not all take: printable ASCII without spaces');
}

/** At most one login with each, the likelier first. @throws UNAUTHENTICATED (both-refused) */
async function findHolding(client: RedfishClient, credentials: Credentials, likelier: Candidate): Promise<Candidate> {
  const other = likelier === 'current' ? 'next' : 'current';
  for (const candidate of [likelier, other] as const) {
    client.use(credentials[candidate]);
    try {
      await client.proveLogin();
      return candidate;
    } catch (error) {
      // One that may not be tried again this hour is as good as refused.
      if (!isRefusal(error, 'credential-refused', 'credential-stopped')) throw error;
      client.note(`the ${candidate} password does not hold: ${error.message}`);
    }
  }
  throw new ControlError(
    'UNAUTHENTICATED',
    `${client.address.key} takes neither the current nor the new password; nothing more is tried. ${client.notes.join('. ')}`,
    {
      details: { reason: 'both-refused' },
    },
  );
}

async function rotate(client: RedfishClient, credentials: Credentials, holds: Candidate): Promise<KindEnd> {
  client.use(credentials[holds]);
  await client.proveLogin();
  if (holds === 'next') return ended(client, await accountPath(client, credentials.next), { already: true });
  const account = await findAccount(client, credentials);
  await change(client, account, credentials);
  return ended(client, account.path, { already: false });
}

async function ended(client: RedfishClient, account: string, { already }: { already: boolean }): Promise<KindEnd> {
  const sessionsClosed = await client.closeOthers();
  return succeeded(site.BmcRotateResultSchema, { account, already, sessionsClosed, notes: [...client.notes] });
}

interface Account {
  readonly path: string;
  readonly etag: string | null;
}

/** Where the password is changed. */
async function findAccount(client: RedfishClient, { current, next }: Credentials): Promise<Account> {
  try {
    const service = await client.follow(linkAt((await client.root()).body, 'AccountService'), 'its accounts');
    judgeLength(client, service.body, next.password);
    const account = await accountIn(client, service, current.username);
    if (fieldOf(account.body, 'Locked') === true) {
      throw new ControlError('RATE_LIMITED', `${client.address.key}: the account ${account.path} is locked`, {
        details: { reason: 'locked-out' },
      });
    }
    return account;
  } catch (error) {
    if (!isRefusal(error, 'password-change-required')) throw error;
    const path = ownPath(error.details['changePasswordAt'], client.address);
    if (path === null) throw error;
    client.note('the controller demands a new password before anything else');
    return { path, etag: null };
  }
}

async function accountPath(client: RedfishClient, { username }: Credential): Promise<string> {
  const service = await client.follow(linkAt((await client.root()).body, 'AccountService'), 'its accounts');
  return (await accountIn(client, service, username)).path;
}

/** Of the slot with that name: ids are numbers on most, names on some, and many slots are empty. */
async function accountIn(client: RedfishClient, service: Resource, username: string): Promise<Resource> {
  const { members } = await membersOf(client, client.path(linkAt(service.body, 'Accounts'), 'its accounts'), accountsMax);
  const member = members.find(({ body }) => textOf(body, 'UserName') === username);
  if (member !== undefined) return client.get(member.path);
  throw new ControlError('NOT_FOUND', `${client.address.key} shows no account of the name that logged in`, {
    details: { reason: 'no-account' },
  });
}

/** Known before it is sent: some firmware cuts what is too long, and then nobody knows the password. */
function judgeLength(client: RedfishClient, service: Json, password: string): void {
  const [least, most] = [countOf(service, 'MinPasswordLength'), countOf(service, 'MaxPasswordLength')];
  if (password.length >= least && (most === 0 || password.length <= most)) return;
  throw new ControlError(
    'INVALID_INPUT',
    `${client.address.key} takes passwords of ${least} to ${most} characters, the new one has ${password.length}`,
    {
      details: { reason: 'password-refused', least, most },
    },
  );
}

/** Sends the change once, and proves it by a login of its own. */
async function change(client: RedfishClient, { path, etag }: Account, { next }: Credentials): Promise<void> {
  let doubt: ControlError | null = null;
  try {
    await client.patch(path, { Password: next.password }, etag);
  } catch (error) {
    if (!isControlError(error)) throw error;
    if (!isDoubtful(error)) throw passwordRefused(error);
    client.note('the answer to the change of password was lost: a login with the new one tells');
    doubt = error;
  }
  client.use(next);
  try {
    await client.proveLogin();
  } catch (error) {
    if (!isRefusal(error, 'credential-refused')) throw error;
    if (doubt !== null) throw doubt;
    throw new ControlError(
      'UNAUTHENTICATED',
      `the password was changed by the controller's word, and the new one is refused: ${error.message}`,
      {
        details: { reason: 'password-not-taken' },
      },
    );
  }
}

const isDoubtful = (error: ControlError): boolean => isRefusal(error, 'bmc-unreachable', 'bmc-unavailable', 'bmc-busy', 'bad-answer');

/** By the controller's own policy: the new password is the fault, not the machine. */
function passwordRefused(error: ControlError): ControlError {
  const status = error.details['status'];
  if (status !== 400 && status !== 422) return error;
  return new ControlError('INVALID_INPUT', error.message, { details: { ...error.details, reason: 'password-refused' }, cause: error });
}
