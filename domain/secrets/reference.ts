/**
 * References to secrets (SEC-001, SEC-028): what commands and desired state carry in place of a value.
 *
 *   secret://<path>                    a sealed row of this deployment
 *   vault://<mount>/<path>#<field>     a field of a KV version 2 entry
 *   env://<NAME>                       a variable of the api's environment, when the deployment allows the name
 *
 * One text for one secret: no escapes, no query, no dot segments, no empty ones; so a reference that is compared is one that is meant.
 */

export type SecretReference =
  | { readonly scheme: 'secret'; readonly path: string }
  | { readonly scheme: 'vault'; readonly mount: string; readonly path: string; readonly field: string }
  | { readonly scheme: 'env'; readonly name: string };

export const maxReferenceLength = 512;
export const maxSecretPathLength = 256;
/** Of one secret's value. */
export const maxSecretBytes = 64 * 1024;

const segment = '(?!\\.{1,2}(?:/|#|$))[A-Za-z0-9._-]{1,128}';
const pathForm = new RegExp(`^${segment}(?:/${segment}){0,7}$`);
const vaultForm = new RegExp(`^vault://(${segment})/(${segment}(?:/${segment}){0,7})#([A-Za-z0-9._-]{1,64})$`);
const envForm = /^env:\/\/([A-Z_][A-Z0-9_]{0,127})$/;
const secretPrefix = 'secret://';

/** True for what may stand behind `secret://`. */
export const isSecretPath = (path: string): boolean => path.length <= maxSecretPathLength && pathForm.test(path);

/** undefined for a text that is no reference, whatever scheme it starts with. */
export function parseSecretReference(text: string): SecretReference | undefined {
  if (text.length > maxReferenceLength) return undefined;
  if (text.startsWith(secretPrefix)) {
    const path = text.slice(secretPrefix.length);
    return isSecretPath(path) ? { scheme: 'secret', path } : undefined;
  }
  const [, mount = '', path = '', field = ''] = vaultForm.exec(text) ?? [];
  if (field !== '') return { scheme: 'vault', mount, path, field };
  const [, name = ''] = envForm.exec(text) ?? [];
  return name === '' ? undefined : { scheme: 'env', name };
}

export const secretRef = (path: string): string => `${secretPrefix}${path}`;
