#include "base/bounded_queue.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace shardline {
namespace {

using namespace std::chrono_literals;

TEST(BoundedQueue, RefusesBeyondCapacityAndKeepsOrder) {
    BoundedQueue<int> queue(2);
    EXPECT_TRUE(queue.try_push(1));
    EXPECT_TRUE(queue.try_push(2));
    EXPECT_FALSE(queue.try_push(3));
    EXPECT_EQ(queue.pop(), 1);
    EXPECT_EQ(queue.pop(), 2);
    EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, RefusedItemStaysWithTheCaller) {
    BoundedQueue<std::vector<int>> queue(1);
    EXPECT_TRUE(queue.try_push({1}));
    std::vector<int> item = {2, 3};
    EXPECT_FALSE(queue.try_push(std::move(item)));
    EXPECT_EQ(item, (std::vector<int>{2, 3}));
}

TEST(BoundedQueue, ClosingWakesWaitersAndDrains) {
    BoundedQueue<int> queue(1);
    std::optional<int> popped = -1;
    std::thread consumer([&] {
        EXPECT_EQ(queue.pop(), 7);
        popped = queue.pop();
    });
    EXPECT_TRUE(queue.push(7));
    queue.close();
    consumer.join();
    EXPECT_EQ(popped, std::nullopt);
    EXPECT_FALSE(queue.push(8));
    EXPECT_FALSE(queue.try_push(8));
}

TEST(BoundedQueue, PushWaitsForRoom) {
    BoundedQueue<int> queue(1);
    queue.push(1);
    std::thread producer([&] { EXPECT_TRUE(queue.push(2)); });
    EXPECT_EQ(queue.pop(), 1);
    EXPECT_EQ(queue.pop(), 2);
    producer.join();
}

TEST(BoundedQueue, PopForGivesUp) {
    BoundedQueue<int> queue(1);
    EXPECT_EQ(queue.pop_for(1ms), std::nullopt);
}

TEST(BoundedQueue, ManyProducersLoseNothing) {
    constexpr int kProducers = 4;
    constexpr int kItems = 1000;
    BoundedQueue<int> queue(16);
    std::vector<std::thread> producers;
    for (int producer = 0; producer < kProducers; ++producer) {
        producers.emplace_back([&] {
            for (int item = 0; item < kItems; ++item) {
                queue.push(item);
            }
        });
    }
    long sum = 0;
    for (int i = 0; i < kProducers * kItems; ++i) {
        sum += *queue.pop();
    }
    for (std::thread& producer : producers) {
        producer.join();
    }
    EXPECT_EQ(sum, long{kProducers} * kItems * (kItems - 1) / 2);
}

}  // namespace
}  // namespace shardline
