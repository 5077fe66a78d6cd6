/** Lets the Temporal SDK download its development server into a folder. It can only do that by starting it once. */
import { TestWorkflowEnvironment } from '@temporalio/testing';

const downloadDir = process.argv[2];
try {
  const environment = await TestWorkflowEnvironment.createLocal({
    server: { executable: { type: 'cached-download', downloadDir }, ui: false },
  });
  await environment.teardown();
  process.exit(0);
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
