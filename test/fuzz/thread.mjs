/** Where a thread of the fuzzer begins: threads do not inherit how their parent reads TypeScript. */
import { register } from 'tsx/esm/api';

register();
await import('./fuzz-child.ts');
