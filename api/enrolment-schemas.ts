/** The messages of the routes of enrolments over SSH. A credential is named, and never stands in one. */
import { z } from 'zod';
import { enrolmentStates } from '../domain/enrolment/states.ts';
import { actor, limited, nodeId, reason } from './schemas.ts';

const word = (what: string, max = 255) => z.string().min(1, `${what} is empty`).max(max, `${what} is longer than ${max} characters`);
const instant = z.number().describe('Unix milliseconds');
const kind = z.enum(['enrol', 'reenrol']);
const role = z.enum(['node', 'site']);

export const enrolmentOrder = z.strictObject({
  kind,
  nodeId,
  siteId: word('the site').exactOptional().describe('of a new node; a known one stays where it is'),
  role: role.exactOptional(),
  tenantId: word('the tenant', 63).exactOptional(),
  address: word('the address').exactOptional().describe('default, as for what follows: as it was enrolled the last time'),
  port: z.int().exactOptional(),
  login: word('the login', 32).exactOptional(),
  becomeRoot: z.boolean().exactOptional().describe('the login takes root’s place with sudo'),
  hostKey: word('the host key', 8_192).exactOptional().describe('SHA256:… or the line of a public key'),
  credential: word('the credential', 256).exactOptional().describe('file://<name>, in the folder of the hosts worker'),
  dryRun: z.boolean().default(false).describe('say what would be ordered, and connect to nothing'),
  actor,
  reason,
});

const draftFields = {
  kind,
  nodeId: z.string(),
  siteId: z.string(),
  role,
  tenantId: z.string(),
  baseGeneration: z.int().nullable().describe('of the identity that serves meanwhile; null: the node was not known'),
  address: z.string(),
  port: z.int(),
  login: z.string(),
  becomeRoot: z.boolean(),
  hostKey: z.string(),
  credential: z.string(),
};
export const enrolment = z.object({
  id: z.string(),
  ...draftFields,
  state: z.enum(enrolmentStates),
  deadline: instant.nullable().describe('the machine completes by then; null before its key is known'),
  createdBy: z.string(),
  reason: z.string(),
  createdAt: instant,
  endedAt: instant.nullable(),
  endReason: z.string(),
  workflowId: z.string(),
});
export const enrolmentAnswer = z.object({
  draft: z.object(draftFields).nullable().describe('of a dry run'),
  enrolment: enrolment.nullable(),
});
export const enrolmentsPage = limited.extend({ node: nodeId.optional(), open: z.enum(['true', 'false']).default('false') });
export const enrolments = z.object({ enrolments: z.array(enrolment) });
export const enrolmentEnd = z.strictObject({ actor, reason });
