// What a program of kernels does, from its command line; a random one is drawn here by its seed.
//
// The same seed gives the same program everywhere, so nothing of <random> whose results are the
// library's own choice. Must not know the driver.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace colocation {

enum class Wait { kDeep, kEach, kFours, kGraph, kBatch };

struct ThreadPlan {
  unsigned streams = 1;
  unsigned blocks = 0;  // 0: as many as fill the GPU
  Wait wait = Wait::kDeep;
  size_t at_once = 16;  // kernels of a graph or a batch
  std::vector<uint64_t> lengths_ns;  // of its kernels, over and over
  size_t copy_bytes = 0;  // there and back behind each unit
  unsigned pause_us = 0;  // behind each unit
  unsigned burst_ms = 0, burst_pause_ms = 0;
};

// SplitMix64. The seed is mixed first: neighbouring states are one sequence, a step apart.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(Mixed(seed + 1)) {}
  uint64_t Bits() { return Mixed(state_ += 0x9E3779B97F4A7C15u); }
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  bool Chance(double part) { return Unit() < part; }
  unsigned Upto(unsigned most) { return 1 + static_cast<unsigned>(Bits() % most); }
  // Each decade as likely as the others.
  double Spread(double least, double most) { return least * std::pow(most / least, Unit()); }

 private:
  static uint64_t Mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

struct Plan {
  std::vector<ThreadPlan> threads;

  bool Read(char** words, int count) {
    const std::string kind = words[0];
    if (kind == "saturate" && count == 2) {
      Saturate(std::atof(words[1]));
    } else if (kind == "bursts" && count == 4) {
      Bursts(std::atof(words[1]), std::atof(words[2]), std::atof(words[3]));
    } else if (kind == "pieces" && count == 4) {
      Pieces(std::atof(words[1]), std::atof(words[2]), std::atof(words[3]));
    } else if (kind == "random" && count == 2) {
      Random(std::strtoull(words[1], nullptr, 10));
    } else {
      return false;
    }
    return true;
  }

  std::string Told() const {
    const char* const waits[] = {"deep queue", "each", "fours", "graphs", "batches"};
    std::string text;
    for (const ThreadPlan& one : threads) {
      double mean_us = 0;
      for (uint64_t ns : one.lengths_ns) mean_us += static_cast<double>(ns) / 1e3;
      mean_us /= static_cast<double>(one.lengths_ns.size());
      if (!text.empty()) text += "; ";
      text += std::to_string(one.streams) + " streams, " + waits[static_cast<int>(one.wait)];
      if (one.wait == Wait::kGraph || one.wait == Wait::kBatch) {
        text += " of " + std::to_string(one.at_once);
      }
      text += ", " + std::to_string(static_cast<long>(mean_us)) + " us";
      text += one.blocks == 0 ? ", full" : ", " + std::to_string(one.blocks) + " blocks";
      if (one.copy_bytes != 0) text += ", copies " + std::to_string(one.copy_bytes >> 10) + " KiB";
      if (one.pause_us != 0) text += ", pauses " + std::to_string(one.pause_us) + " us";
      if (one.burst_ms != 0) {
        text += ", bursts " + std::to_string(one.burst_ms) + "/";
        text += std::to_string(one.burst_pause_ms) + " ms";
      }
    }
    return text;
  }

 private:
  void Saturate(double kernel_us) {
    ThreadPlan one;
    one.lengths_ns = {static_cast<uint64_t>(kernel_us * 1e3)};
    threads = {one};
  }

  // So much work that it takes work_ms alone, then a pause, whatever the work took.
  void Bursts(double kernel_us, double work_ms, double pause_ms) {
    Saturate(kernel_us);
    ThreadPlan& one = threads[0];
    one.wait = Wait::kBatch;
    one.at_once = static_cast<size_t>(std::fmax(1, std::round(work_ms * 1e3 / kernel_us)));
    one.pause_us = static_cast<unsigned>(pause_ms * 1e3);
  }

  // So many short kernels and a long one, over and over, each waited for.
  void Pieces(double short_us, double number, double long_us) {
    Saturate(short_us);
    ThreadPlan& one = threads[0];
    one.wait = Wait::kEach;
    one.lengths_ns.resize(static_cast<size_t>(number), one.lengths_ns[0]);
    one.lengths_ns.push_back(static_cast<uint64_t>(long_us * 1e3));
  }

  void Random(uint64_t seed) {
    Dice dice(seed);
    const unsigned number = dice.Chance(0.6) ? 1 : 1 + dice.Upto(2);
    for (unsigned i = 0; i < number; ++i) threads.push_back(Drawn(&dice, 4 / number));
  }

  static ThreadPlan Drawn(Dice* dice, unsigned most_streams) {
    constexpr double kShortestNs = 10e3, kLongestNs = 30e6, kUnitNs = 60e6;
    const unsigned blocks[] = {0, 0, 1, 32};
    ThreadPlan one;
    one.streams = dice->Upto(most_streams);
    one.blocks = blocks[dice->Upto(4) - 1];
    one.wait = static_cast<Wait>(dice->Upto(5) - 1);
    const double middle_ns = dice->Spread(kShortestNs * 1.5, kLongestNs / 1.5);
    for (int i = 0; i < 16; ++i) {
      one.lengths_ns.push_back(static_cast<uint64_t>(middle_ns * (0.5 + dice->Unit())));
    }
    const double most = std::fmin(64, std::fmax(1, kUnitNs / middle_ns));
    one.at_once = static_cast<size_t>(dice->Spread(1, most + 1));
    if (dice->Chance(0.3)) one.copy_bytes = size_t{1} << (15 + dice->Upto(9));
    if (dice->Chance(0.4)) one.pause_us = static_cast<unsigned>(dice->Spread(50, 20e3));
    if (dice->Chance(0.2)) {
      one.burst_ms = 20 + dice->Upto(130);
      one.burst_pause_ms = 20 + dice->Upto(130);
    }
    return one;
  }
};

}  // namespace colocation
