// Threads as coroutines, one at a time, in every order with up to so many turns taken away: a
// depth-first search over the choices of who goes next. For programs over stepped_word.h.
// Must not know what the threads do.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

namespace statetest {

class Turns {
 public:
  static constexpr int kMost = 4;

  // `body` is called in each thread; `check` at every step, by whoever made it.
  Turns(int most_switches, void (*body)(int), void (*check)())
      : most_switches_(most_switches), body_(body), check_(check) {
    for (Thread& thread : threads_) thread.stack = static_cast<char*>(malloc(kStackBytes));
  }

  // All threads below `count` to their end, in the next order.
  void Run(int count) {
    count_ = count;
    current_ = -1;
    switches_ = 0;
    depth_ = 0;
    steps_ = 0;
    for (int i = 0; i < count; ++i) Begin(i);
    SwitchFrom(&judge_);
  }

  // The next order; false after the last, and then the first again.
  bool Advance() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  // Before an access: somebody else may go first.
  void Step() {
    if (current_ < 0) return;  // the judge
    check_();
    if (++steps_ > kEndless) {
      fprintf(stderr, "no end\n");
      exit(9);
    }
    SwitchFrom(&threads_[current_].context);
    check_();
  }

  // Instead of waiting: the others go first.
  void Pass() {
    if (current_ < 0) return;
    threads_[current_].passes = true;
    SwitchFrom(&threads_[current_].context);
  }

  // True while a thread runs, and not the judge.
  bool is_running() const { return current_ >= 0; }

  void PrintPath() const {
    for (const Choice& choice : path_) fprintf(stderr, " %d/%d", choice.taken, choice.options);
    fprintf(stderr, "\n");
  }

 private:
  static constexpr size_t kStackBytes = size_t{64} << 10;
  static constexpr int kEndless = 100000;

  struct Thread {
    ucontext_t context;
    char* stack;
    bool is_done;
    bool passes;
  };
  struct Choice {
    int taken;
    int options;
  };

  // makecontext passes numbers only, and there is one search in a program.
  static inline Turns* running_ = nullptr;

  static void Main(int index) {
    running_->body_(index);
    running_->threads_[index].is_done = true;
    running_->SwitchFrom(&running_->threads_[index].context);
  }

  void Begin(int index) {
    running_ = this;
    Thread* thread = &threads_[index];
    thread->is_done = false;
    thread->passes = false;
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = thread->stack;
    thread->context.uc_stack.ss_size = kStackBytes;
    makecontext(&thread->context, reinterpret_cast<void (*)()>(Main), 1, index);
  }

  // The next of the recorded choices, or the first of new ones.
  int Choose(int options) {
    if (options == 1) return 0;
    if (depth_ == path_.size()) path_.push_back({0, options});
    return path_[depth_++].taken;
  }

  // Whoever waits lets the others go in turn.
  int AfterPassing() {
    for (const bool is_second_look : {false, true}) {
      for (int i = 1; i <= count_; ++i) {
        const int next = (current_ + i) % count_;
        if (!threads_[next].is_done && !threads_[next].passes) return next;
      }
      if (is_second_look) break;
      for (Thread& thread : threads_) thread.passes = false;
    }
    return -1;
  }

  // Staying costs nothing, taking the turn away from somebody costs a switch.
  int Next() {
    int options[kMost];
    int count = 0;
    const bool stays = current_ >= 0 && !threads_[current_].is_done && !threads_[current_].passes;
    if (!stays && current_ >= 0) return AfterPassing();
    if (stays) options[count++] = current_;
    for (int i = 0; i < count_ && (!stays || switches_ < most_switches_); ++i) {
      // A step of somebody else is what those who passed were waiting for.
      threads_[i].passes = false;
      if (i != current_ && !threads_[i].is_done) options[count++] = i;
    }
    if (count == 0) return -1;
    const int next = options[Choose(count)];
    if (stays && next != current_) ++switches_;
    return next;
  }

  void SwitchFrom(ucontext_t* from) {
    const int next = Next();
    ucontext_t* to = next < 0 ? &judge_ : &threads_[next].context;
    current_ = next;
    if (to != from) swapcontext(from, to);
  }

  const int most_switches_;
  void (*body_)(int);
  void (*check_)();
  Thread threads_[kMost] = {};
  ucontext_t judge_ = {};
  int count_ = 0;
  int current_ = -1;
  int switches_ = 0;
  int steps_ = 0;
  std::vector<Choice> path_;
  size_t depth_ = 0;
};

}  // namespace statetest
