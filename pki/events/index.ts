export { createEventReport, eventReceipt, type PendingReport, readEventReceipt, verifyEventReport } from './event-report.ts';
