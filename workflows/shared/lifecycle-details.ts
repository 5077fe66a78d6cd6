/** The lines of every rotation's current details: who holds it and why, and who is waited for. */
import { showInstant } from '../../domain/time.ts';
import type { LifecycleStatus } from './lifecycle-messages.ts';
import { clip } from './shape.ts';

const behindShown = 10;

/** @param flags what the commands need to find this rotation; empty for that of the command root */
export function describeHold(status: LifecycleStatus, flags = ''): string[] {
  const command = (verb: string): string => ['better-compute rotation', verb, flags].filter((part) => part !== '').join(' ');
  const lines: string[] = [];
  if (status.paused !== null)
    lines.push(`- **paused** by ${status.paused.actor}: ${clip(status.paused.reason, 200)} (\`${command('resume')}\`)`);
  if (status.blocked !== null) {
    lines.push(`- **held**: ${status.blocked.code}: ${clip(status.blocked.message, 400)}`);
    lines.push(
      status.blocked.waitsFor === 'operator'
        ? `- repair it, then \`${command('resume')}\`; or take it back: \`${command('abort')} --reason <why>\``
        : `- waits for the ${status.blocked.waitsFor}: goes on by itself once that is repaired (\`better-compute doctor\`), at once with \`${command('resume')}\``,
    );
  }
  return lines;
}

export function describeBehind(status: LifecycleStatus): string[] {
  if (status.behind === null) return [];
  const { names, count, message, seenAt } = status.behind;
  const more = count > behindShown ? `, and ${count - behindShown} more` : '';
  const shown = names
    .slice(0, behindShown)
    .map((name) => clip(name, 80))
    .join(', ');
  return [
    `- waiting for: ${clip(message, 400)} (as of ${showInstant(seenAt)}; the newest count is in the pending activity)`,
    ...(names.length > 0 ? [`- behind: ${shown}${more}`] : []),
  ];
}
