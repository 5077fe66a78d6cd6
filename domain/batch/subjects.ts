/**
 * What a command acts on (QUO-023 to QUO-030), as one string that stands in the leaf an approver signs:
 *
 *   <node id>                 the machine itself
 *   bmc:<agent>/<address>     a machine's management controller, reached by the site agent <agent>; addresses are site-local, so the agent
 *                             is part of the name
 *   node:<node id>            another machine, on whose behalf a site agent acts
 *
 * Every form is printable ASCII: no two subjects look alike on a screen and differ in their bytes.
 */
import { isNodeId } from '../commands/ids.ts';

/** How a kind names what it acts on; the column `subject` of the kind table. */
export type SubjectRule = 'node' | 'bmc' | 'target';

export type Subject =
  | { readonly form: 'node'; readonly nodeId: string }
  | { readonly form: 'bmc'; readonly agent: string; readonly address: string }
  | { readonly form: 'target'; readonly nodeId: string };

/** A host name or an address, with a port if need be. */
const address = /^[A-Za-z0-9.:_[\]-]{1,255}$/;

/** null for a text that has none of the forms. */
export function parseSubject(text: string): Subject | null {
  if (text.startsWith('node:')) return isNodeId(text.slice(5)) ? { form: 'target', nodeId: text.slice(5) } : null;
  if (!text.startsWith('bmc:')) return isNodeId(text) ? { form: 'node', nodeId: text } : null;
  const slash = text.indexOf('/');
  if (slash < 0) return null;
  const subject = { form: 'bmc', agent: text.slice(4, slash), address: text.slice(slash + 1) } as const;
  return isNodeId(subject.agent) && address.test(subject.address) ? subject : null;
}

export function formatSubject(subject: Subject): string {
  switch (subject.form) {
    case 'node':
      return subject.nodeId;
    case 'bmc':
      return `bmc:${subject.agent}/${subject.address}`;
    case 'target':
      return `node:${subject.nodeId}`;
  }
}

/** The machine that must belong to the batch's tenant: the node, the site agent, or the target (QUO-024). */
export const machineOfSubject = (subject: Subject): string => (subject.form === 'bmc' ? subject.agent : subject.nodeId);

/**
 * The subject of a command that `nodeId` executes, or null when its payload does not name one. Only the signed body decides:
 * `payload` is what it holds, decoded (QUO-027).
 */
export function subjectByRule(rule: SubjectRule, { nodeId, payload }: { nodeId: string; payload: unknown }): string | null {
  const field = (name: string): string => {
    const value = (payload as Readonly<Record<string, unknown>> | null | undefined)?.[name];
    return typeof value === 'string' ? value : '';
  };
  switch (rule) {
    case 'node':
      return nodeId;
    case 'bmc':
      return wellFormed(`bmc:${nodeId}/${field('address')}`);
    case 'target':
      return wellFormed(`node:${field('nodeId')}`);
  }
}

const wellFormed = (subject: string): string | null => (parseSubject(subject) === null ? null : subject);
