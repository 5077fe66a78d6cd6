/**
 * May this call be made of this plugin? Pure (DMN-001). It stands behind the quorum's judge, which has read in the signed command whether
 * the call claims to be harmless; here the claim is held against the machine's own manifest. So a control plane that calls a destructive
 * method harmless goes around the approvers and meets this refusal, and one that calls a harmless method destructive has asked them in vain.
 *
 * The order: the call itself → the manifest that was meant → the method → what it claims → how much it brings.
 */
import { ControlError } from '../../domain/errors.ts';
import { type Invocation, problemsOfInvocation } from '../../domain/plugins/invocation.ts';
import type { PluginManifest, PluginMethod } from './manifest.ts';

/** A plugin of this machine as its files are now. */
export interface InstalledPlugin {
  readonly manifest: PluginManifest;
  /** Of the manifest's own bytes, lower-case hex. */
  readonly manifestSha256: string;
}

/** @throws INVALID_INPUT naming everything that is wrong with the call itself */
export function assertInvocation(invocation: Invocation): void {
  const problems = problemsOfInvocation(invocation).map(({ field, message }) => `${wireNames[field]} ${message}`);
  if (problems.length === 0) return;
  throw new ControlError('INVALID_INPUT', `driver.invoke: ${problems.join('; ')}`, { details: { reason: 'driver-payload', problems } });
}

const wireNames = Object.freeze({ plugin: 'plugin', manifestSha256: 'manifest_sha256', method: 'method', input: 'input' });

/** @throws INVALID_STATE other-manifest; UNSUPPORTED no-method; PERMISSION_DENIED method-destructive; INVALID_INPUT plugin-input */
export function judgeInvocation({ manifest, manifestSha256 }: InstalledPlugin, invocation: Invocation): PluginMethod {
  const { plugin, method: name, input, harmless } = invocation;
  if (invocation.manifestSha256 !== manifestSha256)
    throw new ControlError(
      'INVALID_STATE',
      `plugin ${plugin} has the manifest ${manifestSha256} (version ${manifest.version}) here, and the command means ${invocation.manifestSha256}: read the one that is here, and name it`,
      { details: { reason: 'other-manifest', manifestSha256 } },
    );
  const method = Object.hasOwn(manifest.methods, name) ? manifest.methods[name] : undefined;
  if (method === undefined)
    throw new ControlError('UNSUPPORTED', `plugin ${plugin} has no method ${name}; it has ${Object.keys(manifest.methods).join(', ')}`, {
      details: { reason: 'no-method' },
    });
  if (harmless && method.destructive)
    throw new ControlError(
      'PERMISSION_DENIED',
      `the command calls ${name} of plugin ${plugin} harmless, and this machine's manifest calls it destructive: send it without harmless, in a batch where approvers guard the fleet`,
      { details: { reason: 'method-destructive' } },
    );
  if (input.length > method.maxInputBytes)
    throw new ControlError(
      'INVALID_INPUT',
      `${name} of plugin ${plugin} takes ${method.maxInputBytes} bytes, and input has ${input.length}`,
      {
        details: { reason: 'plugin-input' },
      },
    );
  return method;
}
