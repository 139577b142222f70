#include "server/generator.h"

namespace sluice::server {

namespace {

class ServiceGenerator : public Generator {
 public:
  explicit ServiceGenerator(Service& service) : service_(service) {}
  uint64_t submit(GenerationRequest request, std::shared_ptr<GenerationListener> listener) override {
    return service_.submit(std::move(request), std::move(listener));
  }
  void cancel(uint64_t request) override { service_.cancel(request); }
  ServiceStatus status() const override { return service_.status(); }
  void save_slot(uint32_t slot, const std::string& file, Service::SlotDone done) override {
    service_.save_slot(slot, file, std::move(done));
  }
  void restore_slot(uint32_t slot, const std::string& file, Service::SlotDone done) override {
    service_.restore_slot(slot, file, std::move(done));
  }
  void erase_slot(uint32_t slot, Service::SlotDone done) override { service_.erase_slot(slot, std::move(done)); }

 private:
  Service& service_;
};

}  // namespace

std::unique_ptr<Generator> generator_of(Service& service) { return std::make_unique<ServiceGenerator>(service); }

}  // namespace sluice::server
