/** Changes inside DER that leave everything around it well formed: lengths of the parents are written anew. */
import type { Mutator } from './mutate-bytes.ts';
import { byteMutators } from './mutate-bytes.ts';
import type { Random } from './random.ts';

interface Node {
  tag: number;
  /** Children of a constructed value, or the bytes of a primitive one. */
  content: Node[] | Uint8Array;
}

const maxDepth = 24;

/** null when these bytes are not a row of values with definite lengths. */
function readNodes(bytes: Uint8Array, depth = 0): Node[] | null {
  const nodes: Node[] = [];
  let at = 0;
  while (at < bytes.length) {
    const header = readHeader(bytes, at);
    if (header === null) return null;
    const content = bytes.subarray(header.at, header.end);
    const isConstructed = ((bytes[at] as number) & 0x20) !== 0;
    const inner = isConstructed && depth < maxDepth ? readNodes(content, depth + 1) : null;
    nodes.push({ tag: bytes[at] as number, content: inner ?? content });
    at = header.end;
  }
  return nodes;
}

function readHeader(bytes: Uint8Array, start: number): { at: number; end: number } | null {
  const first = bytes[start + 1];
  if (first === undefined) return null;
  const count = first < 0x80 ? 0 : first & 0x7f;
  if (count > 3 || first === 0x80) return null;
  let length = first < 0x80 ? first : 0;
  for (let i = 0; i < count; i += 1) length = length * 256 + (bytes[start + 2 + i] ?? 0);
  const at = start + 2 + count;
  return at + length <= bytes.length ? { at, end: at + length } : null;
}

const writeNodes = (nodes: readonly Node[]): Buffer => Buffer.concat(nodes.map(writeNode));

function writeNode({ tag, content }: Node): Buffer {
  const body = Array.isArray(content) ? writeNodes(content) : content;
  return Buffer.concat([Uint8Array.of(tag), lengthOf(body.length), body]);
}

function lengthOf(length: number): Uint8Array {
  if (length < 0x80) return Uint8Array.of(length);
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest & 0xff);
  return Uint8Array.of(0x80 | bytes.length, ...bytes);
}

/** Every list of siblings of a tree. */
const listsOf = (nodes: Node[]): Node[][] => [nodes, ...nodes.flatMap(({ content }) => (Array.isArray(content) ? listsOf(content) : []))];

const tags = [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0a, 0x0c, 0x13, 0x16, 0x17, 0x18, 0x30, 0x31, 0x80, 0x82, 0x86, 0xa0, 0xa3, 0x1f];

type Edit = (list: Node[], at: number, random: Random) => void;

const edits: readonly Edit[] = [
  (list, at) => void list.splice(at, 1),
  (list, at) => void list.splice(at, 0, list[at] as Node),
  (list, at, random) => void list.splice(at, 1, list[random.below(list.length)] as Node),
  (list, at, random) => void Object.assign(list[at] as Node, { tag: random.pick(tags) }),
  (list, at) => {
    const node = list[at] as Node;
    list[at] = { tag: 0x30, content: [node] };
  },
  (list, at, random) => {
    let node = list[at] as Node;
    for (let depth = random.below(300); depth > 0; depth -= 1) node = { tag: 0x30, content: [node] };
    list[at] = node;
  },
  (list, at, random) => void Object.assign(list[at] as Node, { content: random.bytes(random.below(40)) }),
  (list, at, random) => {
    const node = list[at] as Node;
    const bytes = Array.isArray(node.content) ? writeNodes(node.content) : node.content;
    node.content = random.pick(byteMutators)(bytes, random, bytes);
  },
  (list, at, random) => {
    const node = list[at] as Node;
    // What is inside of an OCTET STRING or BIT STRING is often DER again.
    const bytes = Array.isArray(node.content) ? null : node.content;
    const from = node.tag === 0x03 ? 1 : 0;
    const inner = bytes === null ? null : readNodes(bytes.subarray(from));
    if (bytes === null || inner === null || inner.length === 0) return;
    editOnce(inner, random);
    node.content = Buffer.concat([bytes.subarray(0, from), writeNodes(inner)]);
  },
  (list, at, random) => {
    const node = list[at] as Node;
    list.splice(at, 0, ...Array.from({ length: random.below(200) }, () => node));
  },
];

function editOnce(nodes: Node[], random: Random): void {
  const list = random.pick(listsOf(nodes).filter((candidate) => candidate.length > 0));
  random.pick(edits)(list, random.below(list.length), random);
}

export const mutateDer: Mutator = (input, random) => {
  const nodes = readNodes(input);
  if (nodes === null || nodes.length === 0) return random.pick(byteMutators)(input, random, input);
  editOnce(nodes, random);
  return writeNodes(nodes);
};
