/**
 * The hosts worker: speaks SSH to machines that are enrolled (queue bc-hosts). It has the credentials of hosts, the public half of the key bundle and
 * the database; no key of the deployment, and no workflow task.
 */
import { createHostActivities } from '../activities/hosts.ts';
import { readPublicBundle } from '../pki/bundle/index.ts';
import { encodePinsFile } from '../pki/enroll/index.ts';
import { spkiPin } from '../pki/x509/index.ts';
import { createBundleFileStore } from '../runtime/bundle-file-store.ts';
import { type ProcessContext, type RunningProcess, runProcess } from '../runtime/lifecycle.ts';
import { createDatabaseBundleStore } from '../services/bundle-store.ts';
import { taskQueues } from '../temporal.config.ts';
import { activitiesOf } from './boundaries.ts';
import { type HostsConfig, readHostsConfig } from './config.ts';
import { createHosts, type HostsOptions } from './hosts/hosts.ts';
import { readProgram } from './hosts/program.ts';
import { startWorkerProcess, type WorkerParts } from './process.ts';
import { hostsWorkerSettings } from './worker-settings.ts';

await runProcess({ name: 'worker-hosts', start });

async function start(context: ProcessContext): Promise<RunningProcess> {
  const config = readHostsConfig(context.env);
  return startWorkerProcess({ name: 'worker-hosts', config, context, build: (parts) => build(config, parts) });
}

async function build(config: HostsConfig, parts: WorkerParts): Promise<void> {
  const { db } = parts;
  const { credentials, program, layout, unit } = config;
  const pins = pinsOf(config, parts);
  // Wrong pins would only be found out at the first machine.
  await pins();
  const hosts = createHosts({
    db,
    credentials,
    layout,
    unit,
    pins,
    program: program === null ? null : await readProgram(program),
  });
  const activities = activitiesOf(taskQueues.hosts, [createHostActivities({ hosts })]);
  await parts.runWorker({ ...hostsWorkerSettings, taskQueue: taskQueues.hosts, activities });
}

/** Read at each use: a serving CA that was renewed is what the next machine pins. The seal is not opened here; what is pinned is public. */
function pinsOf({ bundlePath, gateway, approverSetSha256 }: HostsConfig, { db, context: { log } }: WorkerParts): HostsOptions['pins'] {
  const store = bundlePath === null ? createDatabaseBundleStore({ db, now: Date.now, log }) : createBundleFileStore(bundlePath);
  return async () => {
    const bundle = readPublicBundle((await store.read()).text);
    const { trustDomain, servingCa, joinSigning } = bundle;
    const text = encodePinsFile({
      trustDomain,
      gateway: gateway.url,
      ...(gateway.name === undefined ? {} : { serverName: gateway.name }),
      servingCaPin: spkiPin(servingCa.certificate.spki),
      joinKey: joinSigning.spki,
      ...(approverSetSha256 === undefined ? {} : { approverSetSha256 }),
    });
    return { text, trustDomain };
  };
}
