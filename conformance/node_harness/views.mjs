// BullMQ's objects as the driver protocol shows them, and the other way round.

import { RawJson, jsonText } from './raw_json.mjs';

export function orNull(value) {
  return value ?? null;
}

export function jobView(job) {
  return {
    id: String(job.id),
    name: String(job.name ?? ''),
    data_raw: jsonText(job.data) ?? '',
    opts: job.opts ?? {},
    timestamp: orNull(job.timestamp),
    delay: orNull(job.delay),
    priority: orNull(job.priority),
    attempts_made: orNull(job.attemptsMade),
    attempts_started: orNull(job.attemptsStarted),
    stalled_counter: orNull(job.stalledCounter),
    progress_raw: jsonText(job.progress),
    returnvalue_raw: jsonText(job.returnvalue),
    failed_reason: orNull(job.failedReason),
    stacktrace_length: orNull(job.stacktrace?.length),
    processed_on: orNull(job.processedOn),
    finished_on: orNull(job.finishedOn),
    processed_by: orNull(job.processedBy),
    parent_key: orNull(job.parentKey),
    deduplication_id: orNull(job.deduplicationId),
  };
}

export function maybeJob(job) {
  return { job: job ? jobView(job) : null };
}

export function schedulerView(scheduler) {
  return {
    key: String(scheduler.key),
    name: String(scheduler.name ?? ''),
    next: orNull(scheduler.next),
    every: orNull(scheduler.every),
    pattern: orNull(scheduler.pattern),
    tz: orNull(scheduler.tz),
    limit: orNull(scheduler.limit),
    start_date: orNull(scheduler.startDate),
    end_date: orNull(scheduler.endDate),
    iteration_count: orNull(scheduler.iterationCount),
    offset: orNull(scheduler.offset),
    template_data_raw: jsonText(scheduler.template?.data),
    template_opts: orNull(scheduler.template?.opts),
  };
}

/** flow-producer.ts leaves holes among the children where a child's hash is gone. */
export function flowView(node) {
  const children = (node.children ?? []).filter(Boolean).map(flowView);
  return { id: String(node.job.id), queue: node.job.queueName, children };
}

export function flowNode(node) {
  return {
    name: node.name,
    queueName: node.queue,
    data: new RawJson(node.data_raw ?? '{}'),
    opts: node.opts ?? {},
    children: (node.children ?? []).map(flowNode),
  };
}

export function newJob({ name, data_raw: dataRaw, opts }) {
  return { name, data: new RawJson(dataRaw ?? '{}'), opts: opts ?? {} };
}

export function texts(values, convert) {
  return Object.fromEntries(Object.entries(values ?? {}).map(([key, value]) => [key, convert(value)]));
}
