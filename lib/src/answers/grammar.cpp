// Single texts by the grammars of limits.
#include "answers/answers.h"
#include "config/fault.h"
#include "config/share.h"
#include "config/size.h"
#include "config/terms.h"

namespace gpufence {
namespace {

template <typename Amount, Fault (*kParse)(std::string_view, Amount*)>
Fault Number(std::string_view text, JsonText* json) {
  Amount amount{};
  const Fault fault = kParse(text, &amount);
  if (fault == Fault::kNone) json->Number(static_cast<uint64_t>(amount));
  return fault;
}

Fault ReadSize(std::string_view text, JsonText* json) {
  Size size{};
  const Fault fault = ParseSize(text, &size);
  if (fault != Fault::kNone) return fault;
  json->Raw("[");
  json->Number(size.amount);
  json->Raw(size.percent_of_device ? ",true]" : ",false]");
  return fault;
}

Fault ReadSwitch(std::string_view text, JsonText* json) {
  bool on = false;
  const Fault fault = ParseSwitch(text, &on);
  if (fault == Fault::kNone) json->Bool(on);
  return fault;
}

struct Grammar {
  std::string_view name;
  Fault (*read)(std::string_view text, JsonText* json);
};

constexpr Grammar kGrammars[] = {
    {"size", ReadSize},
    {"percent", Number<uint64_t, ParsePercent>},
    {"ratio", Number<uint64_t, ParseRatio>},
    {"oversubscribe", Number<uint64_t, ParseOversubscribe>},
    {"megabytes", Number<uint64_t, ParseMegabytes>},
    {"switch", ReadSwitch},
    {"priority", Number<CorePriority, ParsePriority>},
    {"weight", Number<uint32_t, ParseWeight>},
    {"burst", Number<uint64_t, ParseBurst>},
    {"floor", Number<uint32_t, ParseFloor>},
};

}  // namespace

void AnswerGrammar(std::string_view name, std::string_view text, JsonText* json) {
  for (const Grammar& grammar : kGrammars) {
    if (grammar.name != name) continue;
    char value[64];
    JsonText written(value, sizeof value);
    const Fault fault = grammar.read(text, &written);
    json->Raw("{");
    if (fault == Fault::kNone) {
      json->Key("value");
      json->Raw({value, written.size()});
    } else {
      json->Key("clause");
      json->Text(WordingOf(fault).clause);
      json->Key("fix");
      json->Text(WordingOf(fault).fix);
    }
    json->Raw("}");
  }
}

}  // namespace gpufence
