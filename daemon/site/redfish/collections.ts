/**
 * The members of a collection in as few requests as the controller allows: expanded where it knows how, page by page, each page and each
 * member once (a link that leads in circles ends the walk), never more than asked for.
 */
import { isControlError } from '../../../domain/errors.ts';
import type { RedfishClient } from './client.ts';
import { asObject, fieldOf, type Json, listOf, type Resource } from './resource.ts';

export interface Members {
  readonly members: readonly Resource[];
  /** There were more than were asked for. */
  readonly truncated: boolean;
}

/** @param most members at most */
export async function membersOf(client: RedfishClient, collection: string, most: number): Promise<Members> {
  const members: Resource[] = [];
  const seen = new Set<string>();
  let page: string | null = collection;
  while (page !== null && !seen.has(page)) {
    seen.add(page);
    const { body } = await expanded(client, page);
    for (const member of listOf(body, 'Members')) {
      const path = client.path(asObject(member)?.['@odata.id'], `a member of ${collection}`);
      if (seen.has(path)) continue;
      if (members.length >= most) return { members, truncated: true };
      seen.add(path);
      const resource = await memberAt(client, path, asObject(member) ?? {});
      if (resource !== undefined) members.push(resource);
    }
    const next = fieldOf(body, 'Members@odata.nextLink');
    page = next === undefined ? null : client.path(next, `the next page of ${collection}`);
  }
  return { members, truncated: false };
}

/** Some answer an expansion that they advertise with an error: then they are asked without, from there on. */
async function expanded(client: RedfishClient, path: string): Promise<Resource> {
  const { expandLevels } = await client.root();
  if (expandLevels > 0 && client.mayExpand && !path.includes('?')) {
    try {
      return await client.get(`${path}?$expand=.($levels=1)`);
    } catch (error) {
      if (!isControlError(error) || error.code === 'UNAUTHENTICATED' || error.details['reason'] === 'bmc-unreachable') throw error;
      client.mayExpand = false;
      client.note('the controller advertises $expand and refuses it: read one by one');
    }
  }
  return client.get(path);
}

/** A member that has gone since its collection was read is no failure. */
async function memberAt(client: RedfishClient, path: string, member: Json): Promise<Resource | undefined> {
  if (Object.keys(member).some((name) => name !== '@odata.id')) return { path, body: member, etag: null };
  return (await findResource(client, path)) ?? undefined;
}

/** null for one that is not there. */
export async function findResource(client: RedfishClient, path: string): Promise<Resource | null> {
  try {
    return await client.get(path);
  } catch (error) {
    if (isControlError(error) && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}
