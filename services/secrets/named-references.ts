/** The references that a message names (SEC-001, SEC-006): what stands in its fields whose names end in `_ref`, at any depth. */
import type { DescMessage, Message } from '@bufbuild/protobuf';
import { type ReflectMessage, reflect } from '@bufbuild/protobuf/reflect';

/** A signed body is at most a few levels deep; one that is deeper names nothing below. */
const maxDepth = 8;

/** @param schema of the message: a field is found by its name in the protocol, never by one that a sender chose */
export function namesReference(schema: DescMessage, message: Message, ref: string): boolean {
  return ref !== '' && namesIn(reflect(schema, message), ref, maxDepth);
}

function namesIn(message: ReflectMessage, ref: string, depth: number): boolean {
  if (depth === 0) return false;
  return message.fields.some((field) => {
    if (!message.isSet(field)) return false;
    switch (field.fieldKind) {
      case 'scalar':
        return field.name.endsWith('_ref') && message.get(field) === ref;
      case 'message':
        return namesIn(message.get(field), ref, depth - 1);
      case 'list':
        if (field.listKind === 'scalar') return field.name.endsWith('_refs') && [...message.get(field)].includes(ref);
        return field.listKind === 'message' && [...message.get(field)].some((one) => namesIn(one as ReflectMessage, ref, depth - 1));
      case 'enum':
      case 'map':
        return false;
    }
  });
}

/** What one field of one section names, by their names in JSON and in kebab case: `host:k8s-join` / `tokenRef` (SEC-007). */
export function sectionNames(
  schema: DescMessage,
  message: Message,
  place: { readonly section: string; readonly field: string; readonly ref: string },
): boolean {
  const section = schema.fields.find(({ name }) => name.replaceAll('_', '-') === place.section);
  if (section?.fieldKind !== 'message') return false;
  const found = reflect(schema, message);
  if (!found.isSet(section)) return false;
  const inner = found.get(section);
  const field = section.message.fields.find(({ jsonName, name }) => jsonName === place.field && name.endsWith('_ref'));
  return field?.fieldKind === 'scalar' && inner.get(field) === place.ref && place.ref !== '';
}
