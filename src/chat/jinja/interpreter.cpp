#include "chat/jinja/interpreter.h"

#include <algorithm>

#include "chat/jinja/text.h"

namespace sluice::jinja {

const Value* Scope::find(Symbol symbol) const {
  for (const auto& [name, value] : variables) {
    if (name == symbol) return &value;
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

// A scope for as long as it lives; kept until the end of the render if something captured it.
class Interpreter::LocalScope {
 public:
  LocalScope(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    interpreter_.scope_ = scope_.get();
  }
  explicit LocalScope(Interpreter& interpreter) : LocalScope(interpreter, interpreter.scope_) {}
  ~LocalScope() {
    interpreter_.scope_ = outer_;
    if (scope_->captured) interpreter_.retained_.push_back(std::move(scope_));
  }
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;
  Scope& operator*() const { return *scope_; }
  Scope* operator->() const { return scope_.get(); }

 private:
  Interpreter& interpreter_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

Interpreter::Interpreter(const Program& program, const Environment& environment, const Value& context)
    : program_(program), environment_(environment), budget_(environment.limits) {
  if (!context.is(Type::kDict)) throw TemplateError(FailureKind::kType, "the context of a template must be a dict");
  outside_.reserve(program.names.size());
  for (const std::string& name : program.names) {
    if (const Value* value = context.as_dict().find(std::string_view(name))) {
      outside_.emplace_back(*value);
    } else if (const Native* native = find_global(name)) {
      auto function = std::make_shared<Function>();
      function->native = native;
      outside_.emplace_back(Value(Type::kFunction, std::move(function)));
    } else {
      outside_.emplace_back();
    }
  }
}

// Namespaces may hold themselves, and values in them may nest without end through others.
Interpreter::~Interpreter() {
  for (const Value& value : namespaces_) {
    const auto attributes = std::move(value.as_namespace().attributes);
    value.as_namespace().attributes.clear();
  }
}

std::string Interpreter::render() {
  try {
    execute(program_.body);
  } catch (const TemplateError& error) {
    if (error.line() != 0) throw;
    throw TemplateError(error.failure(), error.detail(), line_);
  }
  return std::move(output_);
}

Value Interpreter::make_namespace() {
  Value out(Type::kNamespace, std::make_shared<Namespace>());
  budget_.make_items(2);
  namespaces_.push_back(out);
  return out;
}

template <typename Body>
Value Interpreter::captured_text(Body&& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  try {
    body();
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  budget_.make_text(text.size());
  return Value(std::move(text));
}

void Interpreter::print(const Value& value) {
  if (!value.is_string()) budget_.make_text(extent(value).weight);
  append_text(*out_, value);
  budget_.check_output(out_->size());
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement) {
  budget_.step();
  if (statement.kind == StmtKind::kText) {
    *out_ += static_cast<const TextStmt&>(statement).text;
    budget_.check_output(out_->size());
    return Flow::kNormal;
  }
  const Deeper deeper(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kText:
      break;
    case StmtKind::kPrint:
      print(evaluate(*static_cast<const PrintStmt&>(statement).value));
      break;
    case StmtKind::kIf:
      return execute_if(static_cast<const IfStmt&>(statement));
    case StmtKind::kFor:
      return execute_for(static_cast<const ForStmt&>(statement));
    case StmtKind::kSet: {
      const auto& node = static_cast<const SetStmt&>(statement);
      assign(node.target, evaluate(*node.value));
      break;
    }
    case StmtKind::kSetBlock:
      return execute_set_block(static_cast<const SetBlockStmt&>(statement));
    case StmtKind::kWith:
      return execute_with(static_cast<const WithStmt&>(statement));
    case StmtKind::kMacro: {
      const auto& node = static_cast<const MacroStmt&>(statement);
      scope_->set(node.symbol, make_macro(node));
      break;
    }
    case StmtKind::kCallBlock:
      execute_call_block(static_cast<const CallBlockStmt&>(statement));
      break;
    case StmtKind::kFilterBlock:
      return execute_filter_block(static_cast<const FilterBlockStmt&>(statement));
    case StmtKind::kScope:
      return execute_scope(static_cast<const ScopeStmt&>(statement).body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kLoader:
      throw TemplateError(FailureKind::kNoLoader, "a chat template can't include, import or extend other templates");
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_if(const IfStmt& node) {
  for (const auto& branch : node.branches) {
    if (branch.condition) line_ = branch.line;
    if (!branch.condition || truthy(evaluate(*branch.condition))) return execute(branch.body);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_scope(const Block& body) {
  const LocalScope scope(*this);
  return execute(body);
}

Interpreter::Flow Interpreter::execute_with(const WithStmt& node) {
  std::vector<Value> values;
  for (const auto& assignment : node.assignments) values.push_back(evaluate(*assignment.second));
  const LocalScope scope(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(node.assignments[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlockStmt& node) {
  Flow flow = Flow::kNormal;
  Value text = captured_text([&] { flow = execute_scope(node.body); });
  if (flow != Flow::kNormal) return flow;
  assign(node.target, filter_text(node.filter.get(), std::move(text)));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlockStmt& node) {
  Flow flow = Flow::kNormal;
  Value text = captured_text([&] { flow = execute_scope(node.body); });
  if (flow == Flow::kNormal) print(filter_text(node.filter.get(), std::move(text)));
  return flow;
}

void Interpreter::execute_call_block(const CallBlockStmt& node) {
  const Value caller = make_macro(node.body);
  print(evaluate_call(static_cast<const CallExpr&>(*node.call), &caller));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) return scope_->set(target.symbol, value);
  if (target.kind == Target::Kind::kAttribute) {
    const Value space = lookup(target.symbol);
    if (!space.is(Type::kNamespace)) {
      throw TemplateError(FailureKind::kRuntime, "cannot assign attribute on non-namespace object");
    }
    budget_.make_items(1);
    space.as_namespace().set(target.attribute, value);
    return;
  }
  if (!is_iterable(value)) fail_type(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  const Items items = iterate(value, budget_);
  if (items.size() != target.parts.size()) {
    const bool few = items.size() < target.parts.size();
    throw TemplateError(FailureKind::kValue,
                        fmt::format("{} values to unpack (expected {}, got {})", few ? "not enough" : "too many",
                                    target.parts.size(), items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

// --- loops

std::vector<Value> Interpreter::loop_over(const ForStmt& node, const Value& iterable) {
  const Items items = iterate(iterable, budget_);
  budget_.make_items(items.size());
  if (!node.condition) return items.to_vector();
  std::vector<Value> out;
  for (const Value& item : items) {
    const LocalScope scope(*this);
    assign(node.target, item);
    if (truthy(evaluate(*node.condition))) out.push_back(item);
  }
  return out;
}

Interpreter::Flow Interpreter::execute_for(const ForStmt& node) {
  const Value iterable = evaluate(*node.iterable);
  if (node.recursive) capture_scopes();
  return run_loop(node, iterable, 0);
}

Interpreter::Flow Interpreter::run_loop(const ForStmt& node, const Value& iterable, int level) {
  auto shared = std::make_shared<Loop>();
  Loop& loop = *shared;
  const Value loop_value(Type::kLoop, std::move(shared));
  loop.items = loop_over(node, iterable);
  loop.extent = {1, 16};
  for (const Value& item : loop.items) loop.extent.add(extent(item));
  if (loop.extent.depth > kMaxValueDepth) {
    throw TemplateError(FailureKind::kRecursion, "loops over loops nest too deeply");
  }
  loop.level = level;
  if (node.recursive) {
    loop.node = &node;
    loop.scope = scope_;
  }
  // As in jinja2, the else branch runs unless a body came to its end: break and continue leave before that.
  bool completed = false;
  Flow flow = Flow::kNormal;
  for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
    budget_.step();
    const LocalScope scope(*this);
    if (program_.loop != Program::kNoSymbol) scope->set(program_.loop, loop_value);
    line_ = node.line;
    assign(node.target, loop.items[loop.index]);
    flow = execute(node.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) completed = true;
  }
  loop.last_seen.reset();  // it could hold the loop itself
  if (node.has_otherwise && !completed) return execute_scope(node.otherwise);
  return Flow::kNormal;
}

Value Interpreter::call_loop(const Value& value, const Arguments& arguments) {
  const Loop& loop = value.object<Loop>();
  if (loop.node == nullptr) {
    fail_type("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) fail_type("loop() takes one argument");
  const Deeper deeper(*this);
  Scope* const outer = std::exchange(scope_, loop.scope);
  const int line = line_;
  Value text = captured_text([&] { run_loop(*loop.node, arguments.positional[0], loop.level + 1); });
  scope_ = outer;
  line_ = line;
  return text;
}

Extent loop_extent(const Value& loop) { return loop.object<Loop>().extent; }

std::string loop_repr(const Value& value) {
  const Loop& loop = value.object<Loop>();
  return fmt::format("<LoopContext {}/{}>", loop.index + 1, loop.items.size());
}

size_t loop_size(const Value& loop) { return loop.object<Loop>().items.size(); }

Items loop_items(const Value& loop) { return Items(loop.object<Loop>().items); }

namespace {

Value run_cycle(Call& call) {
  const auto& choices = call.arguments.positional;
  if (choices.empty()) fail_type("no items for cycling given");
  return choices[call.self.object<Loop>().index % choices.size()];
}

Value run_changed(Call& call) {
  Loop& loop = call.self.object<Loop>();
  const Value seen = Value::tuple(call.arguments.positional);
  call.budget.step(extent(seen).weight / 64);
  const bool changed = !loop.last_seen || !equal(*loop.last_seen, seen);
  if (changed) loop.last_seen = seen;
  return Value(changed);
}

constexpr Native kLoopMethods[] = {{"cycle", "*", run_cycle}, {"changed", "*", run_changed}};

}  // namespace

std::optional<Value> loop_attribute(const Value& value, const std::string& name) {
  const Loop& loop = value.object<Loop>();
  const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "depth") return Value(loop.level + 1);
  if (name == "depth0") return Value(loop.level);
  if (name == "previtem") {
    return index > 0 && index <= size ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  }
  if (const Native* native = find_native(kLoopMethods, name)) {
    auto function = std::make_shared<Function>();
    function->native = native;
    function->self = value;
    return Value(Type::kFunction, std::move(function));
  }
  return std::nullopt;
}

// --- macros

void Interpreter::capture_scopes() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    budget_.make_items(2 + scope->variables.size());
  }
}

Value Interpreter::make_macro(const MacroStmt& node) {
  capture_scopes();
  auto macro = std::make_shared<Macro>();
  macro->node = &node;
  macro->scope = scope_;
  return {Type::kMacro, std::move(macro)};
}

// The new scope is scope_ already, so that defaults see the parameters before them.
void Interpreter::bind_parameters(const MacroStmt& node, const Arguments& arguments) {
  const auto& positional = arguments.positional;
  auto named = arguments.named;
  for (size_t i = 0; i < node.parameters.size(); ++i) {
    const auto& parameter = node.parameters[i];
    if (i < positional.size()) {
      scope_->set(parameter.symbol, positional[i]);
      continue;
    }
    const auto it =
        std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == parameter.name; });
    if (it != named.end()) {
      scope_->set(parameter.symbol, it->second);
      named.erase(it);
    } else if (parameter.fallback) {
      scope_->set(parameter.symbol, evaluate(*parameter.fallback));
    } else {
      scope_->set(parameter.symbol, Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  const auto caller =
      std::find_if(named.begin(), named.end(), [](const auto& entry) { return entry.first == "caller"; });
  if (node.uses_caller && (scope_->find(program_.caller) == nullptr)) {
    scope_->set(program_.caller, caller != named.end() ? caller->second : Value::undefined("No caller defined"));
    if (caller != named.end()) named.erase(caller);
  }
  if (node.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : named) rest.set(Value(name), value);
    scope_->set(program_.kwargs, Value::dict(std::move(rest)));
  } else if (!named.empty()) {
    if (named[0].first == "caller") {
      fail_type(fmt::format("macro '{}' was invoked with two values for the special caller argument", node.name));
    }
    fail_type(fmt::format("macro '{}' takes no keyword argument '{}'", node.name, named[0].first));
  }
  const size_t taken = std::min(positional.size(), node.parameters.size());
  if (node.uses_varargs) {
    scope_->set(program_.varargs, Value::tuple({positional.begin() + static_cast<ptrdiff_t>(taken), positional.end()}));
  } else if (taken < positional.size()) {
    fail_type(fmt::format("macro '{}' takes not more than {} argument(s)", node.name, node.parameters.size()));
  }
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Deeper deeper(*this);
  const int line = line_;
  const LocalScope scope(*this, macro.scope);
  bind_parameters(*macro.node, arguments);
  Value text = captured_text([&] { execute(macro.node->body); });
  line_ = line;
  return text;
}

std::string macro_repr(const Value& macro) { return fmt::format("<Macro '{}'>", macro.object<Macro>().node->name); }

std::optional<Value> macro_attribute(const Value& value, const std::string& name) {
  const MacroStmt& node = *value.object<Macro>().node;
  if (name == "name") return Value(node.name);
  if (name == "catch_varargs") return Value(node.uses_varargs);
  if (name == "catch_kwargs") return Value(node.uses_kwargs);
  if (name == "caller") return Value(node.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& parameter : node.parameters) names.emplace_back(parameter.name);
  return Value::tuple(std::move(names));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.type()) {
    case Type::kUndefined:
      fail_undefined(callee);
    case Type::kMacro:
      return call_macro(callee.object<Macro>(), arguments);
    case Type::kLoop:
      return call_loop(callee, arguments);
    case Type::kFunction:
      return run(*callee.as_function().native, callee.as_function().self, arguments);
    default:
      fail_type(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::run(const Native& native, const Value& self, const Arguments& arguments) {
  const Deeper deeper(*this);  // map('map', 'map', ...) nests without nodes
  Call call(*this, native, self, arguments);
  Value out = native.run(call);
  if (out.is_string()) budget_.make_text(out.text().size());
  return out;
}

}  // namespace sluice::jinja
