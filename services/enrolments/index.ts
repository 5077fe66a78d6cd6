/**
 * Machines that get their identity over SSH (XC-033 to XC-044): the order, its mint, its end. See domain/enrolment/states.ts for its life.
 *
 * Threat model: whoever may write to the namespace of the workflows, and a hosts worker that is not ours any more. The first can start and cancel
 * what an operator ordered, and can neither order anything nor say which key is minted: that is written by the hosts worker itself, which heard it
 * from the machine. The second has the root of the machines that it enrols, as it must, and gets no identity that no operator ordered.
 */
export { type EnrolmentProgress, endEnrolment, enrolmentProgress, mintEnrolment, over } from './moves.ts';
export { draftEnrolment, type EnrolmentOrder, orderEnrolment } from './order.ts';
export { getEnrolment, listEnrolments } from './rows.ts';
export type { Enrolment } from './types.ts';
