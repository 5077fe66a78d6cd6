/** The message inside an encoded google.protobuf.Any, as bytes; its type was judged where it came in. */
import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';

export const decodeAny = (payload: Uint8Array | null): Uint8Array | null =>
  payload === null ? null : fromBinary(AnySchema, payload).value;
