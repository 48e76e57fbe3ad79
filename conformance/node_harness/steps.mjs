// The processor `steps`: it follows the list in the job's data, in the worker or in a process of its own.

export const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

export async function followSteps(job, token, bullmq) {
  for (const step of job.data?.steps ?? []) {
    switch (step.do) {
      case 'progress':
        await job.updateProgress(step.value);
        break;
      case 'log':
        await job.log(step.row);
        break;
      case 'sleep':
        await pause(step.ms);
        break;
      case 'fail':
        if (job.attemptsMade < (step.until_attempt ?? Infinity)) {
          throw failureOf(step);
        }
        break;
      case 'unrecoverable':
        // Without an argument if there is no text, as a user would.
        throw step.message ? new bullmq.UnrecoverableError(step.message) : new bullmq.UnrecoverableError();
      case 'merge':
        await job.updateData({ ...job.data, ...step.value });
        break;
      case 'delay':
        await job.moveToDelayed(Date.now() + step.ms, token);
        throw step.message ? new bullmq.DelayedError(step.message) : new bullmq.DelayedError();
      case 'exit':
        setTimeout(() => process.exit(step.code), step.after_ms ?? 0);
        if (step.after_ms === undefined) {
          await new Promise(() => {});
        }
        break;
      case 'return':
        return step.value;
      default:
        throw new Error(`unknown step: ${step.do}`);
    }
  }
  return null;
}

function failureOf(step) {
  const error = new Error(step.message);
  if (step.cyclic) {
    error.cause = { error };
    error.own = error;
  }
  return error;
}
