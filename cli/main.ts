#!/usr/bin/env node
/** `better-compute`: the operator's command. Everything is in program.ts, so that tests run the same code. */
import { processIo } from './io.ts';
import { runCli } from './program.ts';

process.exitCode = await runCli(process.argv.slice(2), processIo());
