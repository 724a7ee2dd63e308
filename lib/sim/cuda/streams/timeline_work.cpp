// Work: its memory and its lists. Must not know: when anything happens.
#include "cuda/streams/timeline_work.h"

#include <stdlib.h>

#include "cuda/streams/timeline_engine.h"

namespace sim {

namespace {

bool Precedes(const Work& left, const Work& right) {
  if (left.priority != right.priority) return left.priority < right.priority;
  if (left.ready_ns != right.ready_ns) return left.ready_ns < right.ready_ns;
  return left.sequence < right.sequence;
}

}  // namespace

void WorkList::PushBack(Work* work) {
  Work** link = &first;
  while (*link != nullptr) link = &(*link)->next;
  work->next = nullptr;
  *link = work;
}

void WorkList::PushReady(Work* work) {
  Work** link = &first;
  while (*link != nullptr && !Precedes(*work, **link)) link = &(*link)->next;
  work->next = *link;
  *link = work;
}

Work* WorkList::PopFirst() {
  Work* work = first;
  if (work != nullptr) first = work->next;
  return work;
}

void WorkList::Remove(Work* work) {
  Work** link = &first;
  while (*link != nullptr && *link != work) link = &(*link)->next;
  if (*link == work) *link = work->next;
}

void* AllocateWork(uint64_t size) { return calloc(1, size); }

void RetainWork(Work* work) { ++work->references; }

void ReleaseWork(Work* work) {
  if (work == nullptr || --work->references != 0) return;
  if (work->dispose != nullptr) work->dispose(*work);
  free(work->successors);
  free(work);
}

}  // namespace sim
