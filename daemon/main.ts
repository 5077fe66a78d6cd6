#!/usr/bin/env node
/** `bcd`: everything is in cli/program.ts, so that tests run the same code. */
import { processIo } from './cli/io.ts';
import { runBcd } from './cli/program.ts';

process.exitCode = await runBcd(process.argv.slice(2), processIo());
