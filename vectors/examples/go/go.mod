module example.com/bullmq-vectors

go 1.19
